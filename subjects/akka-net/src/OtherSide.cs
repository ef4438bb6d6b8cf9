using System.Collections.Concurrent;
using System.Diagnostics;
using System.Runtime.InteropServices;

namespace Powerband.Reflection;

/// <summary>
/// The process of the other side, as seen from this process, and its own main loop. It takes one command and gives one
/// reply at a time, as lines over stdin and stdout. It ends when its stdin does, that is, with the first process,
/// however that ends; if it ends by itself, so does the first process.
/// </summary>
internal sealed class OtherSide
{
    internal const string Option = "--other-side";
    internal const string Meet = "meet ";
    internal const string Sums = "totals";
    internal const string End = "stop";

    private const string ReplyMark = "reply ";
    private static readonly TimeSpan Patience = TimeSpan.FromSeconds(50);

    private readonly Process process;
    private readonly BlockingCollection<string> replies = [];
    private readonly object asking = new();

    private OtherSide(Process process) => this.process = process;

    internal static OtherSide Start(Options options)
    {
        var config = Path.Combine(AppContext.BaseDirectory, options.Collector + ".runtimeconfig.json");
        string[] words = ["exec", "--runtimeconfig", config, typeof(OtherSide).Assembly.Location, Option, .. options.Arguments];
        var start = new ProcessStartInfo(Environment.ProcessPath!, words)
        {
            RedirectStandardInput = true, RedirectStandardOutput = true,
        };
        var found = new OtherSide(Process.Start(start)!);
        new Thread(found.Read) { Name = "other side", IsBackground = true }.Start();
        return found;
    }

    /// <summary>Sends a command and returns the reply. Raises TimeoutException if none comes.</summary>
    internal string Ask(string command)
    {
        lock (asking)
        {
            process.StandardInput.WriteLine(command);
            process.StandardInput.Flush();
            return Reply();
        }
    }

    /// <summary>Waits for the next reply. The first one comes without a command: the address of the process.</summary>
    internal string Reply() => replies.TryTake(out var reply, Patience)
        ? reply
        : throw new TimeoutException("the process of the other side does not answer");

    /// <summary>
    /// Runs in that process. It ignores a signal to the whole group, which is meant for the first process: that one
    /// then needs the ball counts.
    /// </summary>
    internal static void Play(Options options)
    {
        using var terminate = PosixSignalRegistration.Create(PosixSignal.SIGTERM, signal => signal.Cancel = true);
        using var interrupt = PosixSignalRegistration.Create(PosixSignal.SIGINT, signal => signal.Cancel = true);
        Program.SizePool(options.PoolThreads);
        var hall = new Hall(options, Updates.Of(options).Each, "b");
        Say(hall.Address);
        while (Console.In.ReadLine() is { } command)
        {
            Say(Obey(hall, command));
        }

        Environment.Exit(0);
    }

    private static string Obey(Hall hall, string command)
    {
        switch (command)
        {
            case Sums:
                return hall.Totals().Line();
            case End:
                hall.Stop();
                return "done";
            default:
                hall.Meet(command[Meet.Length..]);
                return "done";
        }
    }

    private static void Say(string reply)
    {
        Console.Out.WriteLine(ReplyMark + reply);
        Console.Out.Flush();
    }

    private void Read()
    {
        while (process.StandardOutput.ReadLine() is { } line)
        {
            if (line.StartsWith(ReplyMark, StringComparison.Ordinal))
            {
                replies.Add(line[ReplyMark.Length..]);
            }
            else
            {
                Console.WriteLine(line);
            }
        }

        process.WaitForExit();
        Console.Error.WriteLine($"akka-net: the process of the other side ended by itself, exit code {process.ExitCode}");
        Environment.Exit(process.ExitCode == 0 ? 1 : process.ExitCode);
    }
}

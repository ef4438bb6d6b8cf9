using System.Globalization;
using System.Runtime;
using System.Runtime.InteropServices;

namespace Powerband.Reflection;

/// <summary>
/// Pairs of actors that send every ball back with one more receipt, without end. Prints `ready`, throws in the balls,
/// and serves the counts as a page. At SIGTERM it stops the reflection, waits until every ball is in a player's hand,
/// and prints the final count. Not here: the actors (<see cref="Hall"/>, <see cref="Player"/>), busy neighbours (<see
/// cref="Neighbours"/>).
/// </summary>
internal static class Program
{
    private const int SettleMs = 10_000;
    private const int QuietMs = 2_000;
    private const int PollMs = 5;
    private const int WatchMs = 500;

    private static int Main(string[] arguments)
    {
        if (arguments is [Neighbours.Option, var threads])
        {
            Neighbours.BeBusy(int.Parse(threads, CultureInfo.InvariantCulture));
            return 0;
        }

        try
        {
            if (arguments is [OtherSide.Option, .. var rest])
            {
                OtherSide.Play(Options.Parse(rest));
            }

            Run(Options.Parse(arguments));
            return 0;
        }
        catch (RefusedException refused)
        {
            Console.Error.WriteLine("akka-net: " + refused.Message);
            return 2;
        }
        catch (TimeoutException late)
        {
            Console.Error.WriteLine("akka-net: " + late.Message);
            return 3;
        }
    }

    private static void Run(Options options)
    {
        CheckCollector(options);
        SizePool(options.PoolThreads);
        Neighbours.Start(options.Neighbours);
        var updates = Updates.Of(options);
        IGame game = options.IsRemote ? new RemoteGame(options, updates.Each) : new Hall(options, updates.Each);
        if (options.MetricsPort != 0)
        {
            new MetricsPage(game, options, updates.Registry).Serve(options.MetricsPort);
        }

        using var asked = new ManualResetEventSlim();
        using var terminate = PosixSignalRegistration.Create(PosixSignal.SIGTERM, signal =>
        {
            signal.Cancel = true;
            game.Stop();
            asked.Set();
        });
        Console.WriteLine($"ready: {options.Pairs} pairs with {options.Balls} balls each, dispatcher {options.Dispatcher}");
        WatchMemory();
        game.ThrowIn();
        asked.Wait();
        var unthrown = game.Unthrown;
        Console.WriteLine($"{Settled(game).LastWords()} unthrown={unthrown}");
        Environment.Exit(0); // actors' threads, and whatever is not written of the log, are of no more use
    }

    /// <summary>
    /// Ends this process before too many balls, or log lines that wait for the logger, take the memory of the whole
    /// machine.
    /// </summary>
    private static void WatchMemory()
    {
        var most = GC.GetGCMemoryInfo().TotalAvailableMemoryBytes / 2;
        new Thread(() =>
        {
            while (most == 0 || GC.GetTotalMemory(false) < most)
            {
                Thread.Sleep(WatchMs);
            }

            Console.Error.WriteLine($"akka-net: the heap has more than {most / 1_048_576} MiB, half of the memory there is: "
                + "too many balls, or lines of log that wait to be written");
            Environment.Exit(3);
        }) { Name = "memory watch", IsBackground = true }.Start();
    }

    private static void CheckCollector(Options options)
    {
        if (options.ServerCollector != GCSettings.IsServerGC)
        {
            throw new RefusedException(
                $"--gc {options.Collector} is not what .NET has taken: DOTNET_gcServer is set "
                + "in the environment, or there is one CPU only, for which it has no server collector");
        }
    }

    internal static void SizePool(int threads)
    {
        if (threads == 0)
        {
            return;
        }

        ThreadPool.GetMaxThreads(out var most, out var mostForIo);
        ThreadPool.GetMinThreads(out var least, out var leastForIo);
        var sized = threads < least
            ? ThreadPool.SetMinThreads(threads, leastForIo) && ThreadPool.SetMaxThreads(threads, mostForIo)
            : ThreadPool.SetMaxThreads(threads, mostForIo) && ThreadPool.SetMinThreads(threads, leastForIo);
        if (!sized)
        {
            throw new RefusedException(
                $"--pool-threads {threads} is refused by .NET's pool, which has {least} to {most} threads here");
        }
    }

    /// <summary>
    /// Waits until all balls are caught or known to be lost, or until none has moved for so long that the rest must be
    /// lost.
    /// </summary>
    private static Totals Settled(IGame game)
    {
        var start = Environment.TickCount64;
        var moved = start;
        var totals = game.Totals();
        while (!totals.IsSettled)
        {
            Thread.Sleep(PollMs);
            var now = game.Totals();
            var time = Environment.TickCount64;
            moved = now.IsWhere(totals) ? moved : time;
            totals = now;
            if (time - moved > QuietMs || time - start > SettleMs)
            {
                break;
            }
        }

        return game.Totals(); // not those that ended the wait: they were read while the last ball was being caught
    }
}

using System.Diagnostics;
using System.Globalization;

namespace Powerband.Reflection;

/// <summary>Other load on the machine: a process with so many threads that are always busy.</summary>
internal static class Neighbours
{
    internal const string Option = "--busy-threads";

    /// <summary>Held, since its end of the pipe closes with it.</summary>
    private static Process? process;

    internal static void Start(int threads)
    {
        if (threads > 0)
        {
            string[] words = [typeof(Neighbours).Assembly.Location, Option, threads.ToString(CultureInfo.InvariantCulture)];
            process = Process.Start(new ProcessStartInfo(Environment.ProcessPath!, words) { RedirectStandardInput = true });
        }
    }

    /// <summary>In that process: returns when its standard input ends, which is when the first ends, even if that is killed.</summary>
    internal static void BeBusy(int threads)
    {
        for (var thread = 1; thread <= threads; thread++)
        {
            new Thread(Spin) { Name = $"neighbour-{thread}", IsBackground = true }.Start();
        }

        while (Console.In.Read() >= 0)
        {
            // nobody writes there
        }
    }

    private static void Spin()
    {
        while (true)
        {
            Thread.SpinWait(1_000);
        }
    }
}

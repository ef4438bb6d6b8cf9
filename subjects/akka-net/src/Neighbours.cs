using System.Diagnostics;
using System.Globalization;

namespace Powerband.Reflection;

/// <summary>Other load on the machine: a process with the given number of threads that are always busy.</summary>
internal static class Neighbours
{
    internal const string Option = "--busy-threads";

    /// <summary>Kept in a field, because its end of the pipe closes with it.</summary>
    private static Process? process;

    internal static void Start(int threads)
    {
        if (threads > 0)
        {
            string[] words = [typeof(Neighbours).Assembly.Location, Option, threads.ToString(CultureInfo.InvariantCulture)];
            process = Process.Start(new ProcessStartInfo(Environment.ProcessPath!, words) { RedirectStandardInput = true });
        }
    }

    /// <summary>
    /// Runs in that process. Returns when stdin ends, which is when the first process ends, even if it is killed.
    /// </summary>
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

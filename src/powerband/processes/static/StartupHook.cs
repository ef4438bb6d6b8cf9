// Runs before Main of a .NET program that powerband starts (DOTNET_STARTUP_HOOKS): a thread of its own writes what the
// runtime says of itself five times a second, a line of JSON each, to <folder>/<pid>.jsonl, until the program ends.
//
// Only what netstandard 2.1 has is called by name; all newer figures are looked for, and left out where the runtime has
// none. Whatever fails here ends the thread and leaves the program alone.
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Reflection;
using System.Text;
using System.Threading;

internal static class StartupHook
{
    private const string FolderVariable = "POWERBAND_DOTNET_FIGURES";
    private const int EveryMs = 200;
    private const int ProcessesMax = 64; // as many as are read: programs that are started again and again fill no disk

    public static void Initialize()
    {
        try
        {
            string? folder = Environment.GetEnvironmentVariable(FolderVariable);
            if (string.IsNullOrEmpty(folder) || Directory.GetFiles(folder).Length >= ProcessesMax) return;
            new Thread(() => Write(folder!)) { IsBackground = true, Name = "powerband" }.Start();
        }
        catch (Exception) { }
    }

    private static void Write(string folder)
    {
        try
        {
            long pid = Getter(typeof(Environment), "ProcessId")!();
            using var file = new FileStream(
                Path.Combine(folder, pid + ".jsonl"), FileMode.CreateNew, FileAccess.Write, FileShare.Read, 1);
            var figures = Figures();
            var line = new StringBuilder();
            for (;;)
            {
                // Stopwatch reads CLOCK_MONOTONIC, in ns on Linux.
                line.Clear().Append("{\"at_ns\":").Append(Stopwatch.GetTimestamp());
                foreach (var (name, figure) in figures) line.Append(",\"").Append(name).Append("\":").Append(figure());
                byte[] bytes = Encoding.ASCII.GetBytes(line.Append("}\n").ToString());
                file.Write(bytes, 0, bytes.Length);
                Thread.Sleep(EveryMs);
            }
        }
        catch (Exception) { }
    }

    private static List<(string, Func<long>)> Figures()
    {
        var figures = new List<(string, Func<long>)>
        {
            ("gc_count", () => GC.CollectionCount(0)), // those of older generations are among them
            ("gc_gen2_count", () => GC.CollectionCount(2)),
            ("heap_bytes_now", () => GC.GetTotalMemory(false)),
            ("allocated_bytes", () => GC.GetTotalAllocatedBytes(false)),
            ("pool_busy_now", Busy),
            ("pool_least", Least),
        };
        Add(figures, "gc_ns", Pauses());
        Add(figures, "pool_threads_now", Getter(typeof(ThreadPool), "ThreadCount"));
        Add(figures, "pool_queue_now", Getter(typeof(ThreadPool), "PendingWorkItemCount"));
        Add(figures, "work_items", Getter(typeof(ThreadPool), "CompletedWorkItemCount"));
        Add(figures, "lock_contentions", Getter(typeof(Monitor), "LockContentionCount"));
        return figures;
    }

    private static void Add(List<(string, Func<long>)> figures, string name, Func<long>? figure)
    {
        if (figure != null) figures.Add((name, figure));
    }

    private static long Busy()
    {
        ThreadPool.GetMaxThreads(out int most, out _);
        ThreadPool.GetAvailableThreads(out int free, out _);
        return most - free;
    }

    private static long Least()
    {
        ThreadPool.GetMinThreads(out int least, out _);
        return least;
    }

    private static Func<long>? Pauses()
    {
        MethodInfo? method = typeof(GC).GetMethod("GetTotalPauseDuration"); // .NET 7 and later
        if (method == null) return null;
        var paused = (Func<TimeSpan>)method.CreateDelegate(typeof(Func<TimeSpan>));
        return () => paused().Ticks * 100;
    }

    private static Func<long>? Getter(Type type, string property)
    {
        MethodInfo? getter = type.GetProperty(property)?.GetGetMethod();
        if (getter == null) return null;
        if (getter.ReturnType == typeof(long)) return (Func<long>)getter.CreateDelegate(typeof(Func<long>));
        var narrow = (Func<int>)getter.CreateDelegate(typeof(Func<int>));
        return () => narrow();
    }
}

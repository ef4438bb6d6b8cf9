using System.Globalization;
using System.Net;
using System.Net.Sockets;
using System.Text;
using Prometheus;

namespace Powerband.Reflection;

/// <summary>
/// The counts of the game as a Prometheus text page. A thread of its own adds them up when asked, so that no player is
/// disturbed, and the page does not wait for .NET's pool, which players may occupy.
/// </summary>
internal sealed class MetricsPage(IGame game, Options options, CollectorRegistry? registry)
{
    private static readonly TimeSpan Patience = TimeSpan.FromSeconds(5);

    internal void Serve(int port)
    {
        var listener = new TcpListener(IPAddress.Loopback, port);
        listener.Start();
        new Thread(() => Answer(listener)) { Name = "metrics page", IsBackground = true }.Start();
    }

    private void Answer(TcpListener listener)
    {
        while (true)
        {
            using var client = listener.AcceptTcpClient();
            try
            {
                client.ReceiveTimeout = client.SendTimeout = (int)Patience.TotalMilliseconds;
                using var stream = client.GetStream();
                using var reader = new StreamReader(stream, Encoding.ASCII);
                while (!string.IsNullOrEmpty(reader.ReadLine()))
                {
                    // any request is answered by this page
                }

                var body = Encoding.UTF8.GetBytes(Text());
                stream.Write(Encoding.ASCII.GetBytes("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n"
                    + $"Content-Length: {body.Length}\r\nConnection: close\r\n\r\n"));
                stream.Write(body);
            }
            catch (IOException)
            {
                // the client has gone
            }
        }
    }

    private string Text()
    {
        var totals = game.Totals();
        var text = new StringBuilder();
        Add(text, "counter", "reflection_messages_total", "Balls that players received", totals[Count.Received]);
        Add(text, "counter", "reflection_throws_total", "Balls that players sent on, and those thrown in",
            totals[Count.Sent] + totals[Count.Thrown]);
        Add(text, "counter", "reflection_metric_updates_total", "Counter increments handed to StatsD or prometheus-net",
            totals[Count.Updates]);
        Add(text, "counter", "reflection_metric_errors_total", "Increments that the socket refused",
            totals[Count.UpdateErrors]);
        Add(text, "counter", "reflection_log_lines_total", "Lines of log that players asked for", totals[Count.LogLines]);
        Add(text, "counter", "reflection_log_lines_written_total", "Of those, the ones that are in the log file",
            totals[Count.LogLinesWritten]);
        Add(text, "gauge", "reflection_balls", "Balls thrown in", totals[Count.Thrown]);
        Add(text, "counter", "reflection_balls_lost_total", "Balls that a full mailbox turned away", totals[Count.Lost]);
        Add(text, "gauge", "reflection_pairs", "Pairs of actors", options.Pairs);
        if (!options.IsRemote)
        {
            // this process is one of two then
            Add(text, "counter", "reflection_allocated_bytes_total", "Bytes allocated by all threads",
                GC.GetTotalAllocatedBytes());
            Add(text, "gauge", "reflection_heap_after_gc_bytes", "Heap in use after the last collection; 0 before the first",
                GC.GetGCMemoryInfo().HeapSizeBytes);
            Add(text, "counter", "reflection_gc_pause_seconds_total", "Time for which collections stopped all threads",
                GC.GetTotalPauseDuration().TotalSeconds);
            Add(text, "counter", "reflection_lock_contentions_total", "Times that a thread waited for a lock",
                Monitor.LockContentionCount);
            Add(text, "gauge", "reflection_pool_threads", "Threads of .NET's pool", ThreadPool.ThreadCount);
        }

        return text + OfLibrary();
    }

    private string OfLibrary()
    {
        if (registry is null)
        {
            return "";
        }

        using var page = new MemoryStream();
        registry.CollectAndExportAsTextAsync(page).GetAwaiter().GetResult();
        return Encoding.UTF8.GetString(page.ToArray());
    }

    private static void Add(StringBuilder text, string type, string name, string help, double value) => text
        .Append($"# HELP {name} {help}\n# TYPE {name} {type}\n{name} ")
        .Append(value.ToString("R", CultureInfo.InvariantCulture)).Append('\n');
}

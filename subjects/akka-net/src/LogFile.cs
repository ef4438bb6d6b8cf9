using System.Text;
using Akka.Actor;
using Akka.Dispatch;
using Akka.Event;

namespace Powerband.Reflection;

/// <summary>
/// Writes the log from Akka's event stream to a file: at level debug one line per message, else one for every 50,000.
/// Like all of Akka's loggers it is an actor with an unbounded mailbox: players do not wait for it, and memory grows if
/// it cannot keep up. The file loses its name as soon as it is open, and is overwritten from the start when it is full,
/// so that nothing is left behind however the process ends.
/// </summary>
internal sealed class LogFile : UntypedActor, IRequiresMessageQueue<ILoggerMessageQueueSemantics>
{
    private const long BytesMax = 64 * 1024 * 1024;

    private readonly StreamWriter text;

    public LogFile()
    {
        var path = Path.Combine(Path.GetTempPath(), $"powerband-akka-net-{Guid.NewGuid():N}.log");
        var file = new FileStream(path, FileMode.CreateNew, FileAccess.ReadWrite, FileShare.Delete);
        File.Delete(path);
        text = new StreamWriter(file, new UTF8Encoding(false)) { AutoFlush = true };
    }

    /// <summary>Lines written.</summary>
    internal static Seat Written { get; } = new("log");

    protected override void OnReceive(object message)
    {
        switch (message)
        {
            case InitializeLogger:
                Sender.Tell(new LoggerInitialized());
                break;
            case LogEvent line:
                if (text.BaseStream.Position > BytesMax)
                {
                    text.BaseStream.Position = 0;
                }

                text.WriteLine(line.ToString());
                Written.Add(Count.LogLinesWritten, line.LogClass == typeof(Player) ? 1 : 0);
                break;
            default:
                Unhandled(message);
                break;
        }
    }
}

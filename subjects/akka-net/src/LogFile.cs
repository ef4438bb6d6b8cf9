using System.Text;
using Akka.Actor;
using Akka.Dispatch;
using Akka.Event;

namespace Powerband.Reflection;

/// <summary>
/// The log, by Akka's own event stream into a file: at level debug a line for each message, else one for every 50,000. As
/// all of Akka's loggers it is an actor with an unbounded mailbox, so that players do not wait for it, and memory grows
/// where it cannot keep up. The file has no name any more as soon as it is open, and begins anew when it is full: nothing of it is
/// left behind, however we end.
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

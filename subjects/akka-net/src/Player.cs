using Akka.Actor;
using Akka.Event;

namespace Powerband.Reflection;

/// <summary>
/// One of a pair: sends every ball that it receives to its partner with one more receipt, without end, and keeps balls
/// once the reflection is to stop. Counts in its seat and, if enabled, writes log lines and counts for StatsD or
/// Prometheus.
/// </summary>
internal sealed class Player : UntypedActor
{
    private const int LineEvery = 50_000;

    private static volatile bool stopping;

    private readonly Seat seat;
    private readonly bool reuses;
    private readonly Action<Seat>? updates;
    private readonly ILoggingAdapter log;
    private readonly bool debug;
    private int untilLine = LineEvery;

    public Player(Seat seat, bool reuses, Action<Seat>? updates)
    {
        this.seat = seat;
        this.reuses = reuses;
        this.updates = updates;
        log = Context.GetLogger();
        debug = log.IsDebugEnabled;
    }

    /// <summary>True once balls are to be kept. Read for each ball, written once.</summary>
    internal static bool Stopping => stopping;

    internal static void Stop() => stopping = true;

    protected override void OnReceive(object message)
    {
        if (message is Ball ball)
        {
            Reflect(ball);
        }
        else
        {
            Unhandled(message);
        }
    }

    private void Reflect(Ball ball)
    {
        seat.Add(Count.Received, 1);
        var next = reuses ? ball.Again() : ball.Next();
        if (stopping)
        {
            seat.Add(Count.CaughtCounts, next.Count);
            seat.Add(Count.Caught, 1); // last: who sees it sees the rest
            return;
        }

        updates?.Invoke(seat);
        if (debug)
        {
            log.Debug("{0} received the ball with count {1} from {2}", seat.Name, next.Count, Sender);
            seat.Add(Count.LogLines, 1);
        }

        if (--untilLine == 0)
        {
            untilLine = LineEvery;
            log.Info("{0} has received another {1} balls", seat.Name, LineEvery);
            seat.Add(Count.LogLines, 1);
        }

        seat.Add(Count.Sent, 1);
        seat.Partner!.Tell(next, Self);
    }
}

import org.apache.pekko.actor.ActorRef;
import org.apache.pekko.actor.UntypedAbstractActor;
import org.slf4j.Logger;

/**
 * One of a pair: sends every ball that it receives to its partner with one more receipt, without end, and keeps balls
 * once the reflection is to stop. Counts in its seat and, if enabled, writes log lines and hands increments to StatsD.
 */
final class Player extends UntypedAbstractActor {
    private static final int LINE_EVERY = 50_000;

    /** True once balls are to be kept. Read for each ball, written once. */
    static volatile boolean stopping;

    private final Seat seat;
    private final boolean reuses;
    private final Updates updates;
    private final Logger log;
    private final boolean debug;
    private ActorRef partner;
    private int untilLine = LINE_EVERY;

    Player(Seat seat, boolean reuses, Updates updates, Logger log) {
        this.seat = seat;
        this.reuses = reuses;
        this.updates = updates;
        this.log = log;
        this.debug = log.isDebugEnabled();
    }

    @Override
    public void onReceive(Object message) {
        if (message instanceof Ball ball) {
            reflect(ball);
        } else {
            unhandled(message);
        }
    }

    private void reflect(Ball ball) {
        seat.add(Count.RECEIVED, 1);
        Ball next = reuses ? ball.again() : ball.next();
        if (stopping) {
            seat.add(Count.CAUGHT_COUNTS, next.count);
            seat.add(Count.CAUGHT, 1); // last: who sees it sees the rest
            return;
        }
        if (partner == null) {
            partner = seat.partner;
        }
        updates.increment(seat);
        if (debug) {
            log.debug("{} received the ball with count {} from {}", seat.name, next.count, partner);
        }
        if (--untilLine == 0) {
            untilLine = LINE_EVERY;
            log.info("{} has received another {} balls", seat.name, LINE_EVERY);
        }
        seat.add(Count.SENT, 1);
        partner.tell(next, getSelf());
    }
}

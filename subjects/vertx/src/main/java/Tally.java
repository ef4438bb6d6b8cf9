import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.LongAdder;

/**
 * The counts of one instance: requests, how often one came on another thread than the one before, open connections. An
 * event-loop instance has one thread, which writes plain numbers that others may read at any time; instances on worker
 * or virtual threads count by adders.
 */
final class Tally {
    private static final VarHandle CELL = MethodHandles.arrayElementVarHandle(long[].class);
    private static final int REQUESTS = 8; // with a cache line to either side, so that instances do not share one
    private static final int CELLS = 24;

    final int instance;
    final LoopThread loop;
    final String startedOn;
    final AtomicInteger connections = new AtomicInteger();
    final LongAdder threadChanges = new LongAdder();
    volatile int port;

    private final long[] cells;
    private final LongAdder shared;
    private Thread last;

    private Tally(int instance, LoopThread loop, String startedOn, boolean ownThread) {
        this.instance = instance;
        this.loop = loop;
        this.startedOn = startedOn;
        this.cells = ownThread ? new long[CELLS] : null;
        this.shared = ownThread ? null : new LongAdder();
    }

    /** Makes the next instance's tally. Instances are numbered in the order in which they start. */
    static Tally add(List<Tally> tallies, LoopThread loop, String startedOn, boolean ownThread) {
        synchronized (tallies) {
            Tally tally = new Tally(tallies.size(), loop, startedOn, ownThread);
            tallies.add(tally);
            return tally;
        }
    }

    /** Counts a request; returns true for the first. */
    boolean request() {
        Thread now = Thread.currentThread();
        boolean first = last == null;
        if (now != last) {
            if (!first) {
                threadChanges.increment();
            }
            last = now;
        }
        if (cells == null) {
            shared.increment();
        } else {
            CELL.setOpaque(cells, REQUESTS, cells[REQUESTS] + 1);
        }
        return first;
    }

    long requests() {
        return cells == null ? shared.sum() : (long) CELL.getOpaque(cells, REQUESTS);
    }
}

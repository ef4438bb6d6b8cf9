import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import org.apache.pekko.actor.ActorRef;

/**
 * A player's place: its name, its partner, and its counts. Only the player counts, one message at a time, in plain
 * numbers that it need not read back from memory; any thread may read them at any time. A reader of a number also sees
 * everything counted before it.
 */
final class Seat {
    private static final VarHandle CELL = MethodHandles.arrayElementVarHandle(long[].class);
    private static final int BEFORE = 16; // two cache lines to either side, so that seats share none
    private static final int CELLS = BEFORE + Count.ALL.length + 16;

    final String name;
    /** Set before the first ball is thrown in. */
    ActorRef partner;

    private final long[] cells = new long[CELLS];

    Seat(String name) {
        this.name = name;
    }

    void add(Count count, long number) {
        int at = BEFORE + count.ordinal();
        CELL.setRelease(cells, at, cells[at] + number);
    }

    void addTo(Totals totals) {
        for (Count count : Count.ALL) {
            totals.add(count, (long) CELL.getAcquire(cells, BEFORE + count.ordinal()));
        }
    }
}

import java.util.Arrays;
import java.util.stream.Collectors;

/** One number for each {@link Count}, and their form as a line of text between JVMs. */
final class Totals {
    private final long[] numbers = new long[Count.ALL.length];

    long get(Count count) {
        return numbers[count.ordinal()];
    }

    void add(Count count, long number) {
        numbers[count.ordinal()] += number;
    }

    Totals plus(Totals other) {
        Totals sum = new Totals();
        for (Count count : Count.ALL) {
            sum.add(count, get(count) + other.get(count));
        }
        return sum;
    }

    /** True if every ball is in a player's hand or known to be lost. */
    boolean isSettled() {
        return get(Count.CAUGHT) + get(Count.LOST) >= get(Count.THROWN);
    }

    /** True if no ball has moved between this and `other`. */
    boolean isWhere(Totals other) {
        return get(Count.RECEIVED) == other.get(Count.RECEIVED) && get(Count.LOST) == other.get(Count.LOST)
                && get(Count.CAUGHT) == other.get(Count.CAUGHT);
    }

    /** The final line, after all balls were counted. A ball that nobody has counts as lost, even if nobody saw that. */
    String lastWords() {
        long received = get(Count.RECEIVED);
        long sent = get(Count.SENT) + get(Count.THROWN);
        long lost = get(Count.THROWN) - get(Count.CAUGHT);
        long counts = get(Count.CAUGHT_COUNTS) + get(Count.LOST_COUNTS);
        return "final: messages=" + received + " balls=" + get(Count.THROWN) + " balls_lost=" + lost + " sent=" + sent
                + " received=" + received + " ball_counts=" + counts + " uncounted=" + (received - counts)
                + " unreceived=" + (sent - received - lost) + " metric_updates=" + get(Count.UPDATES);
    }

    String line() {
        return Arrays.stream(numbers).mapToObj(Long::toString).collect(Collectors.joining(" "));
    }

    static Totals parse(String line) {
        String[] words = line.split(" ");
        if (words.length != Count.ALL.length) {
            throw new IllegalArgumentException("no totals: " + line);
        }
        Totals totals = new Totals();
        for (Count count : Count.ALL) {
            totals.add(count, Long.parseLong(words[count.ordinal()]));
        }
        return totals;
    }
}

import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;

/**
 * The rate as the published experiment showed it: a line every 3 s from the first request on, with the rate of these 3
 * s and the average since the first request. The average thus includes the JVM's start.
 */
final class RateLines {
    private static final long WINDOW_NS = 3_000_000_000L;

    private final List<Tally> tallies;
    private final AtomicLong firstNs = new AtomicLong();
    private final CountDownLatch begun = new CountDownLatch(1);

    RateLines(List<Tally> tallies) {
        this.tallies = tallies;
        Thread.ofPlatform().name("rate-lines").daemon().start(this::print);
    }

    /** Called at the first request of each instance; only the first call of all counts. */
    void begin() {
        if (firstNs.compareAndSet(0, System.nanoTime())) {
            begun.countDown();
        }
    }

    private void print() {
        try {
            begun.await();
            long start = firstNs.get();
            long atNs = start;
            long counted = 0;
            for (long due = start + WINDOW_NS; ; due += WINDOW_NS) {
                long pauseNs = due - System.nanoTime();
                if (pauseNs > 0) {
                    Thread.sleep(pauseNs / 1_000_000, (int) (pauseNs % 1_000_000));
                }
                long nowNs = System.nanoTime();
                long total = tallies.stream().mapToLong(Tally::requests).sum();
                System.out.println((nowNs - start) / 1_000_000
                        + " Rate: count/sec: " + perSecond(total - counted, nowNs - atNs)
                        + " Average rate: " + perSecond(total, nowNs - start));
                atNs = nowNs;
                counted = total;
            }
        } catch (InterruptedException stop) {
            Thread.currentThread().interrupt();
        }
    }

    private static long perSecond(long count, long ns) {
        return Math.round(count * 1e9 / ns);
    }
}

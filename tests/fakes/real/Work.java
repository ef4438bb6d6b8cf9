import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Semaphore;
import java.util.concurrent.locks.ReentrantLock;

/** What one request does: the planted limit, of this size. */
class Work {
    static final Object LOCK = new Object();
    static final List<byte[]> KEPT = new ArrayList<>();
    static final ReentrantLock EXPLICIT = new ReentrantLock();
    private final String plant;
    private final Semaphore slots;

    Work(String plant, int limit) {
        this.plant = plant;
        slots = new Semaphore(limit);
    }

    static void spin(long nanos) {
        for (long until = System.nanoTime() + nanos; System.nanoTime() < until; ) {
            Thread.onSpinWait();
        }
    }

    void run() throws InterruptedException {
        switch (plant) {
            case "none" -> {
            }
            case "sleep" -> Thread.sleep(20);
            case "cpu" -> spin(500_000);
            case "monitor" -> {
                synchronized (LOCK) {
                    Thread.sleep(1);
                }
            }
            case "lock" -> {
                EXPLICIT.lock();
                try {
                    Thread.sleep(1);
                } finally {
                    EXPLICIT.unlock();
                }
            }
            case "blocked" -> Thread.sleep(5);
            case "semaphore" -> {
                slots.acquire();
                Thread.sleep(20);
                slots.release();
            }
            case "garbage" -> {
                List<byte[]> made = new ArrayList<>();
                for (int i = 0; i < 2_000; i++) {
                    made.add(new byte[64]);
                }
                synchronized (LOCK) {
                    KEPT.addAll(made);
                    if (KEPT.size() > 300_000) {
                        KEPT.subList(0, 100_000).clear();
                    }
                }
            }
            default -> throw new IllegalArgumentException(plant);
        }
    }
}

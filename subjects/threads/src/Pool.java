import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.RejectedExecutionHandler;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;

/**
 * The executor that connections are handed to, as its option says: {@code per-request}, {@code cached}, {@code
 * fixed:N}, {@code bounded:CORE,MAX,QUEUE}, {@code virtual}. {@code threads} is null if there is no pool whose state
 * could be read. {@code refused} counts the connections that the pool refused, whoever served them then.
 */
record Pool(Executor executor, ThreadPoolExecutor threads, LongAdder refused) {
    private static final long KEEP_ALIVE_S = 60; // as in Executors.newCachedThreadPool

    static Pool parse(String text, String policy) {
        String kind = text.contains(":") ? text.substring(0, text.indexOf(':')) : text;
        String sizes = text.substring(Math.min(text.length(), kind.length() + 1));
        return switch (kind) {
            case "per-request" -> new Pool(task -> Thread.ofPlatform().name("request-", 0).start(task), null, new LongAdder());
            case "virtual" -> new Pool(virtual(), null, new LongAdder());
            case "cached" -> of(new ThreadPoolExecutor(
                    0, Integer.MAX_VALUE, KEEP_ALIVE_S, TimeUnit.SECONDS, new SynchronousQueue<>(), named()));
            case "fixed" -> {
                int threads = size(text, sizes.split(","), 0, 1);
                yield of(new ThreadPoolExecutor(
                        threads, threads, 0, TimeUnit.SECONDS, new LinkedBlockingQueue<>(), named()));
            }
            case "bounded" -> bounded(text, sizes.split(","), policy);
            default -> throw new IllegalArgumentException("--pool " + text
                    + ": write per-request, cached, fixed:N, bounded:CORE,MAX,QUEUE or virtual");
        };
    }

    private static Pool bounded(String text, String[] sizes, String policy) {
        if (sizes.length != 3) {
            throw new IllegalArgumentException("--pool " + text + ": write bounded:CORE,MAX,QUEUE");
        }
        int core = size(text, sizes, 0, 0);
        int max = size(text, sizes, 1, Math.max(1, core));
        int queue = size(text, sizes, 2, 0);
        RejectedExecutionHandler refusal = switch (policy) {
            case "abort" -> new ThreadPoolExecutor.AbortPolicy();
            case "caller-runs" -> new ThreadPoolExecutor.CallerRunsPolicy();
            default -> throw new IllegalArgumentException("--policy " + policy + ": write abort or caller-runs");
        };
        LongAdder refused = new LongAdder();
        ThreadPoolExecutor threads = new ThreadPoolExecutor(core, max, KEEP_ALIVE_S, TimeUnit.SECONDS,
                queue == 0 ? new SynchronousQueue<>() : new ArrayBlockingQueue<>(queue), named(), (task, pool) -> {
                    refused.increment();
                    refusal.rejectedExecution(task, pool);
                });
        return new Pool(threads, threads, refused);
    }

    private static Pool of(ThreadPoolExecutor threads) {
        return new Pool(threads, threads, new LongAdder());
    }

    private static ExecutorService virtual() {
        return Executors.newVirtualThreadPerTaskExecutor();
    }

    private static ThreadFactory named() {
        return Thread.ofPlatform().name("worker-", 0).factory();
    }

    private static int size(String text, String[] sizes, int at, int least) {
        try {
            int size = Integer.parseInt(sizes[at].strip());
            if (size >= least) {
                return size;
            }
        } catch (NumberFormatException notANumber) {
            // reported below
        }
        throw new IllegalArgumentException("--pool " + text + ": " + sizes[at] + " is no whole number of " + least + " or more");
    }
}

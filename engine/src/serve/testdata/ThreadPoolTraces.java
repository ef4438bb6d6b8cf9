// Writes thread_pool_traces.txt: what the real java.util.concurrent.ThreadPoolExecutor does with random sequences of
// tasks, for the Rust pool to be held against. Run by hand, seldom: java ThreadPoolTraces.java > thread_pool_traces.txt
import java.util.*;
import java.util.concurrent.*;

public class ThreadPoolTraces {
    static final Set<Integer> running = new ConcurrentSkipListSet<>();

    static final class Gated implements Runnable {
        final int id;
        final CountDownLatch gate = new CountDownLatch(1);
        Gated(int id) { this.id = id; }
        public void run() {
            running.add(id);
            try { gate.await(); } catch (InterruptedException e) { /* the end of a trace */ }
            running.remove(id);
        }
    }

    public static void main(String[] args) throws Exception {
        Random random = new Random(20261120);
        System.out.println("# ThreadPoolExecutor of JDK " + System.getProperty("java.version") + ", by ThreadPoolTraces.java");
        System.out.println("# pool CORE MAX QUEUE(-1: no limit) KEEP_ALIVE(0 or long) POLICY");
        System.out.println("# submit ID OUTCOME | finish ID | then: threads active largest queued completed : running ids");
        String[] policies = {"abort", "caller-runs", "discard", "discard-oldest"};
        for (int trace = 0; trace < 96; trace++) {
            int core = random.nextInt(4), max = Math.max(1, core + random.nextInt(3));
            int queue = new int[] {0, 1, 2, 3, -1}[random.nextInt(5)];
            String policy = policies[trace % 4];
            if (queue == 0 && policy.equals("discard-oldest")) queue = 1;
            trace(random, core, max, queue, random.nextBoolean(), policy);
        }
    }

    static void trace(Random random, int core, int max, int queue, boolean keepAlive, String policy) throws Exception {
        System.out.printf("pool %d %d %d %s %s%n", core, max, queue, keepAlive ? "long" : "0", policy);
        BlockingQueue<Runnable> tasks = queue == 0 ? new SynchronousQueue<>()
            : queue < 0 ? new LinkedBlockingQueue<>() : new LinkedBlockingQueue<>(queue);
        String[] outcome = new String[1];
        RejectedExecutionHandler handler = (task, pool) -> {
            switch (policy) {
                case "abort" -> new ThreadPoolExecutor.AbortPolicy().rejectedExecution(task, pool);
                case "caller-runs" -> outcome[0] = "caller";
                case "discard" -> {
                    outcome[0] = "discarded";
                    new ThreadPoolExecutor.DiscardPolicy().rejectedExecution(task, pool);
                }
                default -> {
                    outcome[0] = "instead-of:" + ((Gated) pool.getQueue().peek()).id;
                    new ThreadPoolExecutor.DiscardOldestPolicy().rejectedExecution(task, pool);
                }
            }
        };
        ThreadPoolExecutor pool =
            new ThreadPoolExecutor(core, max, keepAlive ? 3600 : 0, TimeUnit.SECONDS, tasks, handler);
        Map<Integer, Gated> all = new HashMap<>();
        for (int step = 0, id = 0; step < 30; step++) {
            List<Integer> now = new ArrayList<>(running);
            if (now.isEmpty() || random.nextInt(100) < 58) {
                Gated task = new Gated(id++);
                all.put(task.id, task);
                outcome[0] = "accepted";
                try { pool.execute(task); } catch (RejectedExecutionException e) { outcome[0] = "aborted"; }
                settle(pool);
                System.out.printf("submit %d %s", task.id, outcome[0]);
            } else {
                int chosen = now.get(random.nextInt(now.size()));
                all.get(chosen).gate.countDown();
                settle(pool);
                System.out.printf("finish %d", chosen);
            }
            System.out.printf(" | %d %d %d %d %d :", pool.getPoolSize(), pool.getActiveCount(), pool.getLargestPoolSize(),
                pool.getQueue().size(), pool.getCompletedTaskCount());
            for (int running : running) System.out.print(" " + running);
            System.out.println();
        }
        pool.shutdownNow();
        pool.awaitTermination(10, TimeUnit.SECONDS);
        running.clear();
    }

    /** Waits until nothing has changed for 8 ms. */
    static void settle(ThreadPoolExecutor pool) throws Exception {
        String before = "";
        for (int same = 0; same < 4; ) {
            Thread.sleep(2);
            String now = pool.toString() + running;
            same = now.equals(before) ? same + 1 : 0;
            before = now;
        }
    }
}

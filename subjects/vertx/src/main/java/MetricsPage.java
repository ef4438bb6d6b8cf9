import com.sun.net.httpserver.HttpServer;
import io.vertx.core.VertxOptions;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.ToLongFunction;
import java.util.stream.LongStream;

/**
 * The counts of the instances, and the kernel's figures of their event loops, as a Prometheus text page. It has a port
 * and a thread of its own, so that no event loop is disturbed.
 */
final class MetricsPage {
    private MetricsPage() { }

    static void serve(InetSocketAddress address, List<Tally> tallies) throws IOException {
        HttpServer page = HttpServer.create(address, 0);
        page.createContext("/metrics", exchange -> {
            byte[] text = text(inOrder(tallies)).getBytes(StandardCharsets.UTF_8);
            exchange.getResponseHeaders().set("Content-Type", "text/plain; version=0.0.4");
            exchange.sendResponseHeaders(200, text.length);
            try (OutputStream out = exchange.getResponseBody()) {
                out.write(text);
            }
        });
        page.start();
    }

    static List<Tally> inOrder(List<Tally> tallies) {
        return tallies.stream().sorted(Comparator.comparingInt(tally -> tally.instance)).toList();
    }

    private static String text(List<Tally> tallies) {
        StringBuilder text = new StringBuilder();
        instances(text, tallies);
        loops(text, tallies);
        add(text, "gauge", "vertx_worker_threads", "Threads of the worker pool that there are", workerThreads());
        add(text, "gauge", "vertx_default_event_loops", "Event loops without any option",
                VertxOptions.DEFAULT_EVENT_LOOP_POOL_SIZE);
        add(text, "gauge", "vertx_processors", "Processors that the JVM sees", Runtime.getRuntime().availableProcessors());
        return text.toString();
    }

    private static void instances(StringBuilder text, List<Tally> tallies) {
        head(text, "counter", "vertx_instance_requests_total", "Requests that reached the handler, by instance and event loop");
        perInstance(text, "vertx_instance_requests_total", tallies, Tally::requests);
        head(text, "gauge", "vertx_instance_connections", "Open connections, by instance and event loop");
        perInstance(text, "vertx_instance_connections", tallies, tally -> tally.connections.get());
        head(text, "counter", "vertx_instance_thread_changes_total", "Requests on another thread than the one before");
        for (Tally tally : tallies) {
            text.append("vertx_instance_thread_changes_total{instance=\"").append(tally.instance).append("\"} ")
                    .append(tally.threadChanges.sum()).append('\n');
        }
        extremes(text, "vertx_connections_per_instance", "Open connections of an instance",
                tallies.stream().map(tally -> (long) tally.connections.get()).toList());
    }

    private static void loops(StringBuilder text, List<Tally> tallies) {
        Map<LoopThread, Long> instances = new HashMap<>();
        Map<LoopThread, Long> connections = new HashMap<>();
        for (Tally tally : tallies) {
            instances.merge(tally.loop, 1L, Long::sum);
            connections.merge(tally.loop, (long) tally.connections.get(), Long::sum);
        }
        add(text, "gauge", "vertx_event_loops", "Event loops that carry an instance", instances.size());
        extremes(text, "vertx_instances_per_loop", "Instances of an event loop", instances.values());
        extremes(text, "vertx_connections_per_loop", "Open connections of an event loop", connections.values());
        List<LoopThread> named = instances.keySet().stream().sorted(Comparator.comparing(LoopThread::name)).toList();
        Map<LoopThread, long[]> times = new HashMap<>();
        for (LoopThread loop : named) {
            long[] cpuAndWaitNs = loop.cpuAndWaitNs();
            if (cpuAndWaitNs != null) {
                times.put(loop, cpuAndWaitNs);
            }
        }
        perLoop(text, "vertx_loop_cpu_seconds_total", "Time of an event loop on a CPU", named, times, 0);
        perLoop(text, "vertx_loop_run_wait_seconds_total", "Time of an event loop ready to run without a CPU", named, times, 1);
    }

    private static void perInstance(StringBuilder text, String name, List<Tally> tallies, ToLongFunction<Tally> value) {
        for (Tally tally : tallies) {
            text.append(name).append("{instance=\"").append(tally.instance).append("\",thread=\"").append(tally.loop.name())
                    .append("\"} ").append(value.applyAsLong(tally)).append('\n');
        }
    }

    private static void perLoop(StringBuilder text, String name, String help, List<LoopThread> loops,
            Map<LoopThread, long[]> times, int at) {
        head(text, "counter", name, help);
        for (LoopThread loop : loops) {
            if (times.containsKey(loop)) {
                text.append(name).append("{thread=\"").append(loop.name()).append("\"} ")
                        .append(times.get(loop)[at] / 1e9).append('\n');
            }
        }
    }

    private static void extremes(StringBuilder text, String name, String help, Collection<Long> values) {
        LongStream numbers = values.stream().mapToLong(Long::longValue);
        var found = numbers.summaryStatistics();
        if (found.getCount() > 0) {
            add(text, "gauge", name + "_min", help + ", the fewest", found.getMin());
            add(text, "gauge", name + "_max", help + ", the most", found.getMax());
        }
    }

    /** Counts the worker threads by their names; looking at all threads would stop them. */
    private static long workerThreads() {
        ThreadGroup group = Thread.currentThread().getThreadGroup();
        Thread[] threads = new Thread[group.activeCount() + 64];
        int count = group.enumerate(threads);
        long workers = 0;
        for (int at = 0; at < count; at++) {
            workers += threads[at].getName().startsWith("vert.x-worker-thread") ? 1 : 0;
        }
        return workers;
    }

    private static void add(StringBuilder text, String type, String name, String help, long value) {
        head(text, type, name, help);
        text.append(name).append(' ').append(value).append('\n');
    }

    private static void head(StringBuilder text, String type, String name, String help) {
        text.append("# HELP ").append(name).append(' ').append(help).append('\n')
                .append("# TYPE ").append(name).append(' ').append(type).append('\n');
    }
}

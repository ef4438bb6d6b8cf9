import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ThreadPoolExecutor;

/**
 * The server's own counters as a Prometheus text page, on a port and a thread of its own, so that a full pool can be
 * seen.
 */
final class MetricsPage {
    private MetricsPage() { }

    static void serve(InetSocketAddress address, ThreadsServer server) throws IOException {
        HttpServer page = HttpServer.create(address, 0);
        page.createContext("/metrics", exchange -> {
            byte[] text = text(server).getBytes(StandardCharsets.UTF_8);
            exchange.getResponseHeaders().set("Content-Type", "text/plain; version=0.0.4");
            exchange.sendResponseHeaders(200, text.length);
            try (OutputStream out = exchange.getResponseBody()) {
                out.write(text);
            }
        });
        page.start();
    }

    private static String text(ThreadsServer server) {
        StringBuilder text = new StringBuilder();
        add(text, "counter", "server_connections_accepted_total", "Connections accepted", server.accepted.sum());
        add(text, "counter", "server_connections_refused_total", "Connections that the pool refused", server.pool.refused().sum());
        add(text, "counter", "server_requests_total", "Requests answered", server.requests.sum());
        ThreadPoolExecutor threads = server.pool.threads();
        if (threads != null) {
            add(text, "gauge", "pool_active_threads", "Threads that hold a connection", threads.getActiveCount());
            add(text, "gauge", "pool_threads", "Threads of the pool", threads.getPoolSize());
            add(text, "gauge", "pool_max_threads", "Threads at most", threads.getMaximumPoolSize());
            add(text, "gauge", "pool_queued", "Connections that wait for a thread", threads.getQueue().size());
        }
        return text.toString();
    }

    private static void add(StringBuilder text, String type, String name, String help, long value) {
        text.append("# HELP ").append(name).append(' ').append(help).append('\n')
                .append("# TYPE ").append(name).append(' ').append(type).append('\n')
                .append(name).append(' ').append(value).append('\n');
    }
}

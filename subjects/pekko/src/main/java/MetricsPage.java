import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;

/**
 * The counts of the game as a Prometheus text page. Its own thread adds them up when asked, so no player is disturbed.
 */
final class MetricsPage {
    private MetricsPage() { }

    static void serve(InetSocketAddress address, Game game, Options options) throws IOException {
        HttpServer page = HttpServer.create(address, 0);
        page.createContext("/metrics", exchange -> {
            byte[] text = text(game.totals(), options).getBytes(StandardCharsets.UTF_8);
            exchange.getResponseHeaders().set("Content-Type", "text/plain; version=0.0.4");
            exchange.sendResponseHeaders(200, text.length);
            try (OutputStream out = exchange.getResponseBody()) {
                out.write(text);
            }
        });
        page.start();
    }

    private static String text(Totals totals, Options options) {
        StringBuilder text = new StringBuilder();
        add(text, "counter", "reflection_messages_total", "Balls that players received", totals.get(Count.RECEIVED));
        add(text, "counter", "reflection_throws_total", "Balls that players sent on, and those thrown in",
                totals.get(Count.SENT) + totals.get(Count.THROWN));
        add(text, "counter", "reflection_metric_updates_total", "Counter increments handed to StatsD",
                totals.get(Count.UPDATES));
        add(text, "counter", "reflection_metric_errors_total", "Increments that the socket refused",
                totals.get(Count.UPDATE_ERRORS));
        add(text, "gauge", "reflection_balls", "Balls thrown in", totals.get(Count.THROWN));
        add(text, "counter", "reflection_balls_lost_total", "Balls that a full mailbox or send queue turned away",
                totals.get(Count.LOST));
        add(text, "gauge", "reflection_pairs", "Pairs of actors", options.pairs());
        add(text, "counter", "reflection_allocated_bytes_total", "Bytes allocated by all threads",
                totals.get(Count.ALLOCATED_BYTES));
        add(text, "gauge", "reflection_heap_after_gc_bytes", "Heap in use after the last collection; 0 before the first",
                totals.get(Count.HEAP_AFTER_GC_BYTES));
        return text.toString();
    }

    private static void add(StringBuilder text, String type, String name, String help, long value) {
        text.append("# HELP ").append(name).append(' ').append(help).append('\n')
                .append("# TYPE ").append(name).append(' ').append(type).append('\n')
                .append(name).append(' ').append(value).append('\n');
    }
}

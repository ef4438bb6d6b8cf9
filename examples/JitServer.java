import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.Executors;

/**
 * A Java server in one file that starts slow: each request renders and parses some text, which the JVM first interprets
 * and then compiles. Its warm-up is what a load test must see and leave out.
 *
 *   powerband tune -P threads=1..16 -- java examples/JitServer.java {port} {threads}
 */
public class JitServer {
    private static final int LINES = 60;

    public static void main(String[] arguments) throws IOException {
        // The head and the body leave in two writes: with Nagle's algorithm each answer waits 40 ms for a delayed ACK.
        System.setProperty("sun.net.httpserver.nodelay", "true");
        int port = Integer.parseInt(arguments[0]);
        int threads = Integer.parseInt(arguments[1]);
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), port), 1024);
        server.setExecutor(Executors.newFixedThreadPool(threads));
        server.createContext("/", exchange -> {
            byte[] body = page(exchange.getRequestURI().toString()).getBytes(StandardCharsets.UTF_8);
            exchange.sendResponseHeaders(200, body.length);
            try (var out = exchange.getResponseBody()) {
                out.write(body);
            }
        });
        server.start();
    }

    /** Lines of text made, parsed again and summed: loops, calls, objects and strings, as in most services. */
    private static String page(String path) {
        StringBuilder text = new StringBuilder();
        for (int line = 0; line < LINES; line++) {
            text.append(path).append(',').append(line * 31 % 17).append(',').append(Integer.toHexString(line)).append('\n');
        }
        long sum = 0;
        for (String row : text.toString().split("\n")) {
            String[] cells = row.split(",");
            sum += Integer.parseInt(cells[cells.length - 2]) + Integer.parseInt(cells[cells.length - 1], 16);
        }
        return "sum " + sum + '\n';
    }
}

import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.Comparator;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/**
 * The JDK's own HTTP server; each request sorts and counts words, code that the JVM's last compiler makes much faster:
 * Warm PORT THREADS.
 */
public class Warm {
    private static final int WORDS = 400;

    static String work(int seed) {
        Map<String, Integer> counts = new HashMap<>();
        IntStream.range(0, WORDS).mapToObj(i -> Integer.toString((i * 7919 + seed) % 97, 36))
                .forEach(word -> counts.merge(word, 1, Integer::sum));
        return counts.entrySet().stream()
                .sorted(Map.Entry.<String, Integer>comparingByValue(Comparator.reverseOrder())
                        .thenComparing(Map.Entry.comparingByKey()))
                .limit(10).map(Object::toString).collect(Collectors.joining(","));
    }

    public static void main(String[] args) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])), 511);
        server.setExecutor(Executors.newFixedThreadPool(Integer.parseInt(args[1])));
        server.createContext("/", exchange -> {
            byte[] body = work(exchange.getRemoteAddress().getPort()).getBytes();
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.start();
    }
}

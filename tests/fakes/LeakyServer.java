import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.ArrayDeque;
import java.util.Deque;

/** Keeps so many KiB of each request for ever, or of the last MOST requests: `java -Xmx64m LeakyServer.java PORT KIB [MOST]`. */
public class LeakyServer {
    private static final Deque<byte[]> KEPT = new ArrayDeque<>();

    public static void main(String[] arguments) throws Exception {
        int bytes = 1024 * Integer.parseInt(arguments[1]);
        int most = arguments.length > 2 ? Integer.parseInt(arguments[2]) : Integer.MAX_VALUE;
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])), 64);
        server.createContext("/", exchange -> {
            try {
                byte[] more = new byte[bytes];
                synchronized (KEPT) {
                    KEPT.add(more);
                    if (KEPT.size() > most) {
                        KEPT.remove();
                    }
                }
            } catch (OutOfMemoryError error) {
                error.printStackTrace();  // as servers do; this one's own executor would swallow it
                throw error;
            }
            exchange.sendResponseHeaders(200, 2);
            exchange.getResponseBody().write("ok".getBytes());
            exchange.close();
        });
        server.start();
    }
}

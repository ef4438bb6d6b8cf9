import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.List;

/** Keeps so many KiB of each request for ever: `java -Xmx64m LeakyServer.java PORT KIB`. */
public class LeakyServer {
    private static final List<byte[]> KEPT = new ArrayList<>();

    public static void main(String[] arguments) throws Exception {
        int bytes = 1024 * Integer.parseInt(arguments[1]);
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])), 64);
        server.createContext("/", exchange -> {
            try {
                byte[] more = new byte[bytes];
                synchronized (KEPT) {
                    KEPT.add(more);
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

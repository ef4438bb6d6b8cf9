import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;

/** The JDK's own HTTP server; each request costs the same work: Server PORT ROUNDS THREADS. */
public class Server {
    static long work(int rounds) {
        long state = rounds;
        for (int i = 0; i < rounds; i++) {
            state = state * 6364136223846793005L + 1442695040888963407L;
        }
        return state;
    }

    public static void main(String[] args) throws Exception {
        int rounds = Integer.parseInt(args[1]);
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])), 511);
        server.setExecutor(Executors.newFixedThreadPool(Integer.parseInt(args[2])));
        server.createContext("/", exchange -> {
            byte[] body = Long.toString(work(rounds)).getBytes();
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.start();
    }
}

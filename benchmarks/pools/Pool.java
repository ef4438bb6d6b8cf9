import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.locks.LockSupport;

/**
 * Requests wait, first come first served, for one of so many threads, which sleeps for a random time: Pool PORT THREADS
 * SERVICE MEAN_US, SERVICE being fixed, exponential or heavy.
 */
public class Pool {
    static final double HEAVY_SIGMA = 1.27; // squared coefficient of variation 4

    static double takes(String service) {
        ThreadLocalRandom dice = ThreadLocalRandom.current();
        return switch (service) {
            case "fixed" -> 1;
            case "exponential" -> -Math.log(1 - dice.nextDouble());
            default -> Math.exp(HEAVY_SIGMA * dice.nextGaussian() - HEAVY_SIGMA * HEAVY_SIGMA / 2);
        };
    }

    public static void main(String[] args) throws Exception {
        String service = args[2];
        double meanNanos = 1000 * Double.parseDouble(args[3]);
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])), 1024);
        server.setExecutor(Executors.newFixedThreadPool(Integer.parseInt(args[1])));
        byte[] body = "ok\n".getBytes();
        server.createContext("/", exchange -> {
            long until = System.nanoTime() + (long) (takes(service) * meanNanos);
            for (long left; (left = until - System.nanoTime()) > 0; ) {
                LockSupport.parkNanos(left);
            }
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.start();
    }
}

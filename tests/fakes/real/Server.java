import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;

/** The JDK's own HTTP server with a fixed pool and one planted limit: Server PORT PLANT LIMIT THREADS. */
public class Server {
    static final Object LOCK = new Object();
    static final List<byte[]> KEPT = new ArrayList<>();

    static void spin(long nanos) {
        for (long until = System.nanoTime() + nanos; System.nanoTime() < until; ) {
            Thread.onSpinWait();
        }
    }

    public static void main(String[] args) throws Exception {
        String plant = args[1];
        Semaphore slots = new Semaphore(Integer.parseInt(args[2]));
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])), 511);
        server.setExecutor(Executors.newFixedThreadPool(Integer.parseInt(args[3])));
        byte[] body = "ok\n".getBytes();
        server.createContext("/", exchange -> {
            try {
                switch (plant) {
                    case "none" -> {
                    }
                    case "sleep" -> Thread.sleep(20);
                    case "cpu" -> spin(500_000);
                    case "monitor" -> {
                        synchronized (LOCK) {
                            Thread.sleep(1);
                        }
                    }
                    case "semaphore" -> {
                        slots.acquire();
                        Thread.sleep(20);
                        slots.release();
                    }
                    case "garbage" -> {
                        List<byte[]> made = new ArrayList<>();
                        for (int i = 0; i < 2_000; i++) {
                            made.add(new byte[64]);
                        }
                        synchronized (LOCK) {
                            KEPT.addAll(made);
                            if (KEPT.size() > 300_000) {
                                KEPT.subList(0, 100_000).clear();
                            }
                        }
                    }
                    default -> throw new IllegalArgumentException(plant);
                }
            } catch (InterruptedException interrupted) {
                throw new java.io.IOException(interrupted);
            }
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.start();
    }
}

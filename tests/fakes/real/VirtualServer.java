import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;

/** The JDK's own HTTP server, each request on a virtual thread, with one planted limit: VirtualServer PORT PLANT LIMIT. */
public class VirtualServer {
    public static void main(String[] args) throws Exception {
        Work work = new Work(args[1], Integer.parseInt(args[2]));
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])), 511);
        server.setExecutor(Executors.newVirtualThreadPerTaskExecutor());
        byte[] body = "ok\n".getBytes();
        server.createContext("/", exchange -> {
            try {
                work.run();
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

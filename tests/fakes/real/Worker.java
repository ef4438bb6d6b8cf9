import io.undertow.Undertow;
import io.undertow.server.HttpHandler;
import io.undertow.server.handlers.BlockingHandler;
import org.xnio.Options;

/** Undertow with one planted limit: Worker PORT PLANT LIMIT THREADS. With 0 threads the handler runs on the I/O thread. */
public class Worker {
    public static void main(String[] args) throws Exception {
        int threads = Integer.parseInt(args[3]);
        Work work = new Work(args[1], Integer.parseInt(args[2]));
        HttpHandler handler = exchange -> {
            work.run();
            exchange.getResponseSender().send("ok\n");
        };
        Undertow.builder()
            .addHttpListener(Integer.parseInt(args[0]), "127.0.0.1")
            .setIoThreads(1)
            .setWorkerThreads(Math.max(1, threads))
            .setSocketOption(Options.BACKLOG, 511)
            .setHandler(threads == 0 ? handler : new BlockingHandler(handler))
            .build()
            .start();
    }
}

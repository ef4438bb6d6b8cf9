import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.locks.LockSupport;

/**
 * Requests wait, first come first served, for one of a number of threads, which sleeps for a random time: Pool PORT
 * THREADS SERVICE MEAN_US, where SERVICE is fixed, exponential or heavy. The JDK's HTTP server is not used, because it
 * leaves requests unanswered while its pool is full.
 */
public class Pool {
    static final double HEAVY_SIGMA = 1.27; // squared coefficient of variation 4
    static final byte[] ANSWER = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n".getBytes();

    static double takes(String service) {
        ThreadLocalRandom dice = ThreadLocalRandom.current();
        return switch (service) {
            case "fixed" -> 1;
            case "exponential" -> -Math.log(1 - dice.nextDouble());
            default -> Math.exp(HEAVY_SIGMA * dice.nextGaussian() - HEAVY_SIGMA * HEAVY_SIGMA / 2);
        };
    }

    static void serve(SocketChannel connection, long nanos) {
        long until = System.nanoTime() + nanos;
        for (long left; (left = until - System.nanoTime()) > 0; ) {
            LockSupport.parkNanos(left);
        }
        try {
            connection.write(ByteBuffer.wrap(ANSWER));
        } catch (IOException gone) {
            // the client went away
        }
    }

    public static void main(String[] args) throws IOException {
        double meanNanos = 1000 * Double.parseDouble(args[3]);
        ExecutorService pool = Executors.newFixedThreadPool(Integer.parseInt(args[1]));
        Selector selector = Selector.open();
        ServerSocketChannel listener = ServerSocketChannel.open();
        listener.bind(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])), 1024).configureBlocking(false);
        listener.register(selector, SelectionKey.OP_ACCEPT);
        ByteBuffer asked = ByteBuffer.allocate(65536);
        while (true) {
            selector.select(key -> {
                try {
                    if (key.isAcceptable()) {
                        SocketChannel connection = listener.accept();
                        connection.setOption(StandardSocketOptions.TCP_NODELAY, true).configureBlocking(false);
                        connection.register(selector, SelectionKey.OP_READ);
                        return;
                    }
                    SocketChannel connection = (SocketChannel) key.channel();
                    if (connection.read(asked.clear()) < 0) {
                        connection.close();
                        return;
                    }
                    long nanos = (long) (takes(args[2]) * meanNanos);
                    pool.execute(() -> serve(connection, nanos)); // the load engine sends a request at once
                } catch (IOException gone) {
                    key.cancel();
                }
            });
        }
    }
}

import java.io.BufferedInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketException;
import java.net.SocketTimeoutException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.LockSupport;

/**
 * A small HTTP server on plain sockets. One thread accepts connections and hands each to an executor, whose thread
 * reads requests, works and answers until the connection ends. The executor and the cost of a request are options.
 *
 * <p>Not here: the executors ({@link Pool}), the metrics page ({@link MetricsPage}).
 */
public final class ThreadsServer {
    private static final byte[] BODY = "<html><body><h1>It works!</h1></body></html>\n".getBytes(StandardCharsets.US_ASCII);
    private static final Set<String> OPTIONS = Set.of(
            "host", "port", "metrics-port", "pool", "policy", "connection", "idle-timeout", "cpu", "wait", "backlog");
    private static final int LINE_MAX = 16 * 1024;

    final Pool pool;
    final LongAdder accepted = new LongAdder();
    final LongAdder requests = new LongAdder();

    private final boolean keepAlive;
    private final int idleTimeoutMs;
    private final long cpuNs;
    private final Duration wait;

    private ThreadsServer(Map<String, String> options) {
        pool = Pool.parse(options.getOrDefault("pool", "per-request"), options.getOrDefault("policy", "abort"));
        keepAlive = switch (options.getOrDefault("connection", "keep-alive")) {
            case "keep-alive" -> true;
            case "close" -> false;
            case String other -> throw new IllegalArgumentException("--connection " + other + ": write close or keep-alive");
        };
        long idleMs = Times.parse(options.getOrDefault("idle-timeout", "60s")).toMillis();
        idleTimeoutMs = Math.clamp(idleMs, 1, Integer.MAX_VALUE); // 0 would be never
        cpuNs = Times.parse(options.getOrDefault("cpu", "0ms")).toNanos();
        wait = Times.parse(options.getOrDefault("wait", "0ms"));
    }

    public static void main(String[] arguments) throws IOException {
        ThreadsServer server;
        String host;
        int port;
        int metricsPort;
        int backlog;
        try {
            Map<String, String> options = options(arguments);
            host = options.getOrDefault("host", "127.0.0.1");
            port = number(options, "port", "8080");
            metricsPort = number(options, "metrics-port", "0");
            backlog = number(options, "backlog", "50");
            server = new ThreadsServer(options);
        } catch (IllegalArgumentException | ArithmeticException error) {
            System.err.println("threads: " + error.getMessage());
            System.exit(2);
            return;
        }
        try (ServerSocket listener = new ServerSocket()) {
            listener.setReuseAddress(true);
            listener.bind(new InetSocketAddress(host, port), backlog);
            if (metricsPort != 0) {
                MetricsPage.serve(new InetSocketAddress(InetAddress.getLoopbackAddress(), metricsPort), server);
            }
            System.out.println("listening on port " + listener.getLocalPort());
            server.acceptForEver(listener);
        }
    }

    private void acceptForEver(ServerSocket listener) throws IOException {
        Thread.currentThread().setName("acceptor");
        while (true) {
            Socket socket = acceptOne(listener);
            accepted.increment();
            try {
                pool.executor().execute(() -> serve(socket));
            } catch (RejectedExecutionException full) {
                refuse(socket);
            } catch (OutOfMemoryError noThread) { // the system refuses another thread
                System.err.println("a connection is refused: " + noThread.getMessage());
                refuse(socket);
            }
        }
    }

    /** Accepts a connection; while the process has no descriptor left, it waits for one. */
    private static Socket acceptOne(ServerSocket listener) throws IOException {
        for (boolean told = false; ; told = true) {
            try {
                return listener.accept();
            } catch (IOException noDescriptor) {
                if (listener.isClosed()) {
                    throw noDescriptor;
                }
                if (!told) {
                    System.err.println("no connection is accepted: " + noDescriptor.getMessage());
                }
                LockSupport.parkNanos(10_000_000);
            }
        }
    }

    /** Serves all requests of one connection. An error on a connection ends only that connection. */
    private void serve(Socket socket) {
        try (socket) {
            socket.setTcpNoDelay(true);
            socket.setSoTimeout(idleTimeoutMs);
            InputStream in = new BufferedInputStream(socket.getInputStream());
            OutputStream out = socket.getOutputStream();
            Request request;
            while ((request = Request.read(in)) != null) {
                work();
                requests.increment();
                boolean stays = keepAlive && request.keepsAlive();
                out.write(answer("200 OK", stays, BODY));
                if (!stays) {
                    return;
                }
            }
        } catch (SocketTimeoutException idle) {
            // The connection was idle for too long: closing it gives its thread back.
        } catch (SocketException gone) {
            // The peer has left.
        } catch (IOException broken) {
            System.err.println("threads: a connection broke: " + broken);
        }
    }

    private static void refuse(Socket socket) {
        try (socket) {
            socket.getOutputStream().write(answer("503 Service Unavailable", false, new byte[0]));
        } catch (IOException gone) {
            // There is nobody to tell.
        }
    }

    private static byte[] answer(String status, boolean keepAlive, byte[] body) {
        String head = "HTTP/1.1 " + status + "\r\nContent-Type: text/html\r\nContent-Length: " + body.length
                + "\r\nConnection: " + (keepAlive ? "keep-alive" : "close") + "\r\n\r\n";
        byte[] start = head.getBytes(StandardCharsets.US_ASCII);
        byte[] whole = new byte[start.length + body.length];
        System.arraycopy(start, 0, whole, 0, start.length);
        System.arraycopy(body, 0, whole, start.length, body.length);
        return whole;
    }

    /** Does the work: first the CPU time, then the wait. Both hold the thread. */
    private void work() {
        if (cpuNs > 0) {
            Work.burn(cpuNs);
        }
        if (!wait.isZero()) {
            try {
                Thread.sleep(wait);
            } catch (InterruptedException stop) {
                Thread.currentThread().interrupt();
            }
        }
    }

    private static Map<String, String> options(String[] arguments) {
        Map<String, String> options = new HashMap<>();
        for (int at = 0; at < arguments.length; at += 2) {
            String name = arguments[at].startsWith("--") ? arguments[at].substring(2) : "";
            if (!OPTIONS.contains(name)) {
                throw new IllegalArgumentException("there is no option " + arguments[at] + ": " + OPTIONS);
            }
            if (at + 1 == arguments.length) {
                throw new IllegalArgumentException(arguments[at] + " needs a value");
            }
            options.put(name, arguments[at + 1]);
        }
        return options;
    }

    private static int number(Map<String, String> options, String name, String absent) {
        String text = options.getOrDefault(name, absent);
        try {
            return Integer.parseInt(text);
        } catch (NumberFormatException error) {
            throw new IllegalArgumentException("--" + name + " " + text + " is no whole number");
        }
    }

    /** The head of one request. Its body, if there is one, is read and dropped. */
    private record Request(boolean keepsAlive) {
        /** Reads a request; null at the end of the connection. */
        static Request read(InputStream in) throws IOException {
            String start = line(in);
            if (start == null) {
                return null;
            }
            boolean keepsAlive = start.endsWith("HTTP/1.1");
            long length = 0;
            for (String header = line(in); header != null && !header.isEmpty(); header = line(in)) {
                int colon = header.indexOf(':');
                String value = header.substring(colon + 1).strip();
                switch (header.substring(0, Math.max(0, colon)).toLowerCase(java.util.Locale.ROOT)) {
                    case "connection" -> keepsAlive = !value.equalsIgnoreCase("close");
                    case "content-length" -> length = Long.parseLong(value);
                    default -> { }
                }
            }
            in.skipNBytes(length);
            return new Request(keepsAlive);
        }

        private static String line(InputStream in) throws IOException {
            StringBuilder line = new StringBuilder(64);
            for (int next = in.read(); ; next = in.read()) {
                if (next < 0) {
                    return null;
                }
                if (next == '\n') {
                    return line.toString();
                }
                if (next != '\r') {
                    line.append((char) next);
                }
                if (line.length() > LINE_MAX) {
                    throw new IOException("a line of over " + LINE_MAX + " bytes");
                }
            }
        }
    }
}

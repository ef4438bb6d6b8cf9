import io.vertx.core.DeploymentOptions;
import io.vertx.core.ThreadingModel;
import io.vertx.core.Vertx;
import io.vertx.core.VertxOptions;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;

/**
 * Deploys {@link HelloVerticle} with the number of instances and event loops and the threading model that its options
 * say. Prints which instance is on which thread, then that it listens.
 *
 * <p>Not here: what an instance does and counts ({@link HelloVerticle}, {@link Tally}), the metrics page ({@link
 * MetricsPage}), the rate lines ({@link RateLines}).
 */
public final class VertxServer {
    private static final Set<String> OPTIONS = Set.of(
            "host", "port", "metrics-port", "instances", "event-loops", "worker", "body");
    private static final int BODY_MAX = 64 * 1024 * 1024;

    private VertxServer() { }

    public static void main(String[] arguments) throws IOException {
        String host;
        int port;
        int metricsPort;
        int eventLoops;
        int body;
        DeploymentOptions deployment;
        try {
            Map<String, String> options = options(arguments);
            host = options.getOrDefault("host", "127.0.0.1");
            port = number(options, "port", "8080", 0, 65535);
            metricsPort = number(options, "metrics-port", "0", 0, 65535);
            eventLoops = number(options, "event-loops", "4", 1, 10_000);
            body = number(options, "body", "12", 0, BODY_MAX);
            deployment = new DeploymentOptions()
                    .setInstances(number(options, "instances", "1", 1, 100_000))
                    .setThreadingModel(model(options.getOrDefault("worker", "event-loop")));
        } catch (IllegalArgumentException error) {
            System.err.println("vertx: " + error.getMessage());
            System.exit(2);
            return;
        }
        List<Tally> tallies = new CopyOnWriteArrayList<>();
        RateLines rate = new RateLines(tallies);
        if (metricsPort != 0) {
            MetricsPage.serve(new InetSocketAddress(InetAddress.getLoopbackAddress(), metricsPort), tallies);
        }
        Vertx vertx = Vertx.vertx(new VertxOptions().setEventLoopPoolSize(eventLoops));
        vertx.deployVerticle(() -> new HelloVerticle(host, port, body, tallies, rate), deployment)
                .onSuccess(id -> {
                    System.out.print(table(tallies));
                    System.out.println("listening on port " + tallies.get(0).port);
                })
                .onFailure(error -> {
                    System.err.println("vertx: cannot deploy: " + error.getMessage());
                    System.exit(1);
                });
    }

    private static ThreadingModel model(String worker) {
        return switch (worker) {
            case "event-loop" -> ThreadingModel.EVENT_LOOP;
            case "worker" -> ThreadingModel.WORKER;
            case "virtual" -> ThreadingModel.VIRTUAL_THREAD;
            default -> throw new IllegalArgumentException("--worker " + worker + ": write event-loop, worker or virtual");
        };
    }

    private static String table(List<Tally> tallies) {
        StringBuilder text = new StringBuilder(String.format("%-9s %-26s %s%n", "instance", "event loop", "started on"));
        for (Tally tally : MetricsPage.inOrder(tallies)) {
            text.append(String.format("%-9d %-26s %s%n", tally.instance, tally.loop.name(), tally.startedOn));
        }
        return text.toString();
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

    private static int number(Map<String, String> options, String name, String absent, int least, int most) {
        String text = options.getOrDefault(name, absent);
        try {
            int number = Integer.parseInt(text);
            if (number >= least && number <= most) {
                return number;
            }
        } catch (NumberFormatException notANumber) {
            // reported below
        }
        throw new IllegalArgumentException("--" + name + " " + text + " is no whole number from " + least + " to " + most);
    }
}

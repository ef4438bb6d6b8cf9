import com.typesafe.config.Config;
import com.typesafe.config.ConfigFactory;

/**
 * Turns the options into Pekko's configuration: the players' dispatcher and mailbox, and, if players are in two JVMs,
 * the settings of Artery and its serializers. Pure.
 */
final class PekkoConfig {
    static final String DISPATCHER = "reflection.dispatcher";
    static final String MAILBOX = "reflection.mailbox";
    private static final int SEND_QUEUE_MIN = 3072; // Artery's default
    private static final int AFFINITY_QUEUE_MIN = 512; // Pekko's default

    private PekkoConfig() { }

    /** `address`: where Artery listens; null if Artery is not used. */
    static Config of(Options options, String address) {
        String text = COMMON + DISPATCHER + " {" + dispatcher(options) + "\nthroughput = " + options.throughput() + "}\n"
                + MAILBOX + " {" + mailbox(options) + "}\n";
        if (address != null) {
            text += artery(options, address) + serialization(options);
        }
        return ConfigFactory.parseString(text).withFallback(ConfigFactory.load());
    }

    /** Balls are counted before the actor system ends, so nothing but this program may end it. */
    private static final String COMMON = """
            pekko {
              loglevel = WARNING
              log-dead-letters = off
              log-dead-letters-during-shutdown = off
              jvm-shutdown-hooks = off
              coordinated-shutdown.run-by-jvm-shutdown-hook = off
            }
            """;

    private static String dispatcher(Options options) {
        String threads = "parallelism-min = %1$d, parallelism-max = %1$d".formatted(options.parallelism());
        return switch (options.dispatcher()) {
            case "fork-join" -> "executor = fork-join-executor, fork-join-executor { " + threads + " }";
            case "thread-pool" -> "executor = thread-pool-executor, thread-pool-executor.fixed-pool-size = "
                    + options.parallelism();
            // A player that finds the queue full is refused: one queue may have to hold all players.
            case "affinity" -> "executor = affinity-pool-executor, affinity-pool-executor { " + threads
                    + ", task-queue-size = " + Math.max(AFFINITY_QUEUE_MIN, 4 * options.pairs()) + " }";
            case "virtual" -> "executor = virtual-thread-executor";
            case "pinned" -> "type = PinnedDispatcher, executor = thread-pool-executor";
            default -> throw new IllegalStateException(options.dispatcher());
        };
    }

    /** The mailbox. A bounded one never blocks: a message that does not fit becomes a dead letter. */
    private static String mailbox(Options options) {
        return switch (options.mailbox()) {
            case "unbounded" -> "mailbox-type = org.apache.pekko.dispatch.UnboundedMailbox";
            case "single-consumer" -> "mailbox-type = org.apache.pekko.dispatch.SingleConsumerOnlyUnboundedMailbox";
            case "bounded" -> "mailbox-type = org.apache.pekko.dispatch.NonBlockingBoundedMailbox, mailbox-capacity = "
                    + options.mailboxCapacity();
            default -> throw new IllegalStateException(options.mailbox());
        };
    }

    /**
     * Artery's settings. The send queue holds every ball, so that Artery drops none. Players' names are abbreviated on
     * the wire once Artery has learnt them, here after 2 s instead of a minute, so that trials can be short.
     */
    private static String artery(Options options, String address) {
        return """
                pekko.actor.provider = remote
                pekko.remote.warn-about-direct-use = off
                pekko.remote.artery {
                  transport = tcp
                  canonical { hostname = "%s", port = 0 }
                  advanced {
                    outbound-message-queue-size = %d
                    compression.actor-refs.advertisement-interval = 2 s
                    compression.manifests.advertisement-interval = 2 s
                  }
                }
                """.formatted(address, Math.max(SEND_QUEUE_MIN, 2 * options.pairs() * options.balls()));
    }

    private static String serialization(Options options) {
        boolean wrapped = options.compresses() && !options.serializer().startsWith("jackson");
        return """
                pekko.actor {
                  allow-java-serialization = %s
                  warn-about-java-serializer-usage = off
                  serializers { ball = "%s" }
                  serialization-bindings { "Ball" = %s }
                }
                pekko.serialization.jackson.%s.compression { algorithm = %s, compress-larger-than = 0 KiB }
                """.formatted(
                options.serializer().equals("java") ? "on" : "off",
                wrapped ? "GzipSerializer" : "BinarySerializer",
                wrapped || options.serializer().equals("binary") ? "ball" : options.serializer(),
                options.serializer().startsWith("jackson") ? options.serializer() : "unused",
                options.compresses() ? "gzip" : "off")
                + "reflection.compressed = " + options.serializer() + "\n";
    }
}

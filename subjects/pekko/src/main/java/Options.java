import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** The command line, checked. Impossible options are refused with a sentence, in an IllegalArgumentException. */
record Options(
        int metricsPort, int pairs, int balls, String dispatcher, int parallelism, int throughput, String mailbox,
        int mailboxCapacity, String metrics, String statsdHost, int statsdPort, int counters, boolean debugLog,
        boolean reusesMessage, int payload, int neighbours, boolean remote, String linkB, String addressA,
        String addressB, String serializer, boolean compresses, String[] arguments) {

    private static final Set<String> NAMES = Set.of(
            "metrics-port", "pairs", "balls", "dispatcher", "parallelism", "throughput", "mailbox", "metrics", "statsd",
            "counters", "debug-log", "message", "payload", "neighbours", "transport", "link-b", "link-a-address",
            "link-b-address", "serializer", "compression");
    private static final List<String> DISPATCHERS = List.of("fork-join", "thread-pool", "affinity", "virtual", "pinned");
    private static final List<String> SENDERS = List.of("off", "datagram", "library-drop", "library-block");
    private static final List<String> SERIALIZERS = List.of("java", "jackson-json", "jackson-cbor", "binary");
    private static final int BALLS_MAX = 1_000_000_000;
    private static final int REMOTE_BALLS_MAX = 4_000_000; // the send queue has a place for each, from the start
    private static final int PAYLOAD_MAX = 100_000; // of Artery's largest frame, 256 KiB
    private static final String LOOPBACK = "127.0.0.1";

    static Options parse(String[] arguments) {
        Map<String, String> given = given(arguments);
        String mailbox = given.getOrDefault("mailbox", "unbounded");
        String[] statsd = statsd(given.getOrDefault("statsd", LOOPBACK + ":0"));
        Options options = new Options(
                number(given, "metrics-port", 0, 0, 65_535),
                number(given, "pairs", 1, 1, 1_000_000),
                number(given, "balls", 6, 1, BALLS_MAX),
                choice(given, "dispatcher", DISPATCHERS),
                number(given, "parallelism", 8, 1, 10_000),
                number(given, "throughput", 100, 1, Integer.MAX_VALUE),
                mailbox.startsWith("bounded:") ? "bounded" : mailbox,
                capacity(mailbox),
                choice(given, "metrics", SENDERS),
                statsd[0],
                number(Map.of("statsd", statsd[1]), "statsd", 0, 0, 65_535),
                number(given, "counters", 2, 1, 2),
                choice(given, "debug-log", List.of("false", "true")).equals("true"),
                choice(given, "message", List.of("allocated", "reused")).equals("reused"),
                number(given, "payload", 0, 0, PAYLOAD_MAX),
                number(given, "neighbours", 0, 0, 1_000),
                choice(given, "transport", List.of("local", "artery-tcp")).equals("artery-tcp"),
                given.getOrDefault("link-b", ""),
                orLoopback(given.getOrDefault("link-a-address", "")),
                orLoopback(given.getOrDefault("link-b-address", "")),
                choice(given, "serializer", SERIALIZERS),
                choice(given, "compression", List.of("off", "on")).equals("on"),
                arguments);
        options.checkTogether();
        return options;
    }

    /** True if the other JVM is in the network namespace at the other end of a link. */
    boolean overLink() {
        return !linkB.isEmpty();
    }

    private void checkTogether() {
        if (!metrics.equals("off") && statsdPort == 0) {
            throw new IllegalArgumentException("--metrics " + metrics + " needs somewhere to send to: --statsd HOST:PORT");
        }
        if (!metrics.equals("off") && overLink()) {
            throw new IllegalArgumentException("--metrics " + metrics + " cannot be sent from the other end of a link: "
                    + "write --metrics off, or leave the link away");
        }
        if ((long) pairs * balls > BALLS_MAX) {
            throw new IllegalArgumentException("--pairs " + pairs + " with --balls " + balls + " each are more than "
                    + BALLS_MAX + " balls");
        }
        if (remote && (long) pairs * balls > REMOTE_BALLS_MAX) {
            throw new IllegalArgumentException("--pairs " + pairs + " with --balls " + balls + " each are more than the "
                    + REMOTE_BALLS_MAX + " balls that may be in play with --transport artery-tcp");
        }
    }

    private static int capacity(String mailbox) {
        return switch (mailbox) {
            case "unbounded", "single-consumer" -> 0;
            case String bounded when bounded.startsWith("bounded:") ->
                    number(Map.of("mailbox bounded:", bounded.substring("bounded:".length())), "mailbox bounded:", 0, 1,
                            Integer.MAX_VALUE);
            default -> throw new IllegalArgumentException("--mailbox " + mailbox
                    + ": write unbounded, single-consumer or bounded:N");
        };
    }

    private static String[] statsd(String text) {
        int colon = text.lastIndexOf(':');
        if (colon < 1) {
            throw new IllegalArgumentException("--statsd " + text + ": write HOST:PORT");
        }
        return new String[] {text.substring(0, colon), text.substring(colon + 1)};
    }

    private static String orLoopback(String address) {
        return address.isEmpty() ? LOOPBACK : address;
    }

    private static Map<String, String> given(String[] arguments) {
        Map<String, String> given = new HashMap<>();
        for (int at = 0; at < arguments.length; at += 2) {
            String name = arguments[at].startsWith("--") ? arguments[at].substring(2) : "";
            if (!NAMES.contains(name)) {
                throw new IllegalArgumentException("there is no option " + arguments[at] + ": " + NAMES);
            }
            if (at + 1 == arguments.length) {
                throw new IllegalArgumentException(arguments[at] + " needs a value");
            }
            given.put(name, arguments[at + 1]);
        }
        return given;
    }

    /** Returns the option's value, which must be one of `choices`; the first is the default. */
    private static String choice(Map<String, String> given, String name, List<String> choices) {
        String chosen = given.getOrDefault(name, choices.get(0));
        if (!choices.contains(chosen)) {
            throw new IllegalArgumentException("--" + name + " " + chosen + ": write one of " + String.join(", ", choices));
        }
        return chosen;
    }

    private static int number(Map<String, String> given, String name, int absent, int least, int most) {
        String text = given.get(name);
        if (text == null) {
            return absent;
        }
        try {
            int number = Integer.parseInt(text);
            if (number >= least && number <= most) {
                return number;
            }
        } catch (NumberFormatException notANumber) {
            // reported below
        }
        throw new IllegalArgumentException("--" + name + (name.endsWith(":") ? "" : " ") + text
                + " is no whole number from " + least + " to " + most);
    }
}

import com.timgroup.statsd.NonBlockingStatsDClientBuilder;
import com.timgroup.statsd.StatsDClient;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.DatagramChannel;
import java.nio.charset.StandardCharsets;
import java.util.List;

/**
 * Where players' increments go: nowhere; each as a datagram of its own, through one socket shared by all; or through
 * the DogStatsD library, which packs them and, when its queue is full, drops them or blocks the player.
 */
final class StatsD {
    private static final List<String> COUNTERS = List.of("reflection.received", "reflection.player.received");

    private final DatagramChannel channel;
    private final StatsDClient client;
    private final String[] counters;

    private StatsD(DatagramChannel channel, StatsDClient client, int counters) {
        this.channel = channel;
        this.client = client;
        this.counters = COUNTERS.subList(0, counters).toArray(new String[0]);
    }

    static StatsD open(Options options) throws IOException {
        return switch (options.metrics()) {
            case "datagram" -> {
                DatagramChannel channel = DatagramChannel.open();
                channel.connect(new InetSocketAddress(options.statsdHost(), options.statsdPort()));
                yield new StatsD(channel, null, options.counters());
            }
            case "library-drop" -> new StatsD(null, library(options, false), options.counters());
            case "library-block" -> new StatsD(null, library(options, true), options.counters());
            default -> new StatsD(null, null, 0);
        };
    }

    /**
     * Opens the library without its aggregation and telemetry: each increment is one line, and nothing else is sent.
     */
    private static StatsDClient library(Options options, boolean blocking) {
        return new NonBlockingStatsDClientBuilder()
                .hostname(options.statsdHost())
                .port(options.statsdPort())
                .enableAggregation(false)
                .enableTelemetry(false)
                .originDetectionEnabled(false)
                .blocking(blocking)
                .build();
    }

    /** The updates of one player: buffers are not shared. */
    Updates updates() {
        if (channel != null) {
            return datagrams();
        }
        return client == null ? seat -> { } : this::throughLibrary;
    }

    private Updates datagrams() {
        ByteBuffer[] datagrams = new ByteBuffer[counters.length];
        for (int at = 0; at < counters.length; at++) {
            byte[] line = (counters[at] + ":1|c").getBytes(StandardCharsets.US_ASCII);
            datagrams[at] = ByteBuffer.allocateDirect(line.length).put(line);
        }
        return seat -> {
            for (ByteBuffer datagram : datagrams) {
                seat.add(Count.UPDATES, 1);
                try {
                    channel.write(datagram.rewind());
                } catch (IOException refused) {
                    seat.add(Count.UPDATE_ERRORS, 1);
                }
            }
        };
    }

    private void throughLibrary(Seat seat) {
        for (String counter : counters) {
            seat.add(Count.UPDATES, 1);
            client.incrementCounter(counter);
        }
    }

    /** Sends what the library still holds. */
    void close() {
        if (client != null) {
            client.close();
        }
    }
}

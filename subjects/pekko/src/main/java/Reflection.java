import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;

/**
 * Pairs of actors that send every ball back with one more receipt, without end. Prints `ready`, throws in the balls,
 * and serves the counts as a page. At SIGTERM it stops the reflection, waits until every ball is in a player's hand,
 * and prints the final count.
 *
 * <p>Not here: the actors ({@link Hall}, {@link Player}), players in other JVMs ({@link RemoteGame}), busy neighbours
 * ({@link Neighbours}).
 */
public final class Reflection {
    private static final long SETTLE_NS = 10_000_000_000L;
    private static final long QUIET_NS = 2_000_000_000L; // longer than a ball is under way on any link
    private static final long CLOSE_MS = 2_000;
    private static final long POLL_MS = 5;

    private Reflection() { }

    public static void main(String[] arguments) throws IOException, InterruptedException {
        Options options;
        try {
            options = Options.parse(arguments);
        } catch (IllegalArgumentException error) {
            System.err.println("pekko: " + error.getMessage());
            System.exit(2);
            return;
        }
        Neighbours.start(options.neighbours());
        Game game = options.remote() ? RemoteGame.start(options) : Hall.ofBoth(options);
        if (options.metricsPort() != 0) {
            MetricsPage.serve(new InetSocketAddress(InetAddress.getLoopbackAddress(), options.metricsPort()), game, options);
        }
        Runtime.getRuntime().addShutdownHook(new Thread(() -> finish(game), "final-count"));
        System.out.println("ready: " + options.pairs() + " pairs with " + options.balls() + " balls each, dispatcher "
                + options.dispatcher());
        game.throwIn();
        Thread.currentThread().join();
    }

    private static void finish(Game game) {
        try {
            game.stop();
            Totals totals = settled(game);
            Thread closing = Thread.ofPlatform().daemon().start(game::close);
            closing.join(CLOSE_MS);
            System.out.println(totals.lastWords());
        } catch (InterruptedException | RuntimeException error) {
            System.err.println("pekko: no final count: " + error);
        }
    }

    /**
     * Waits until all balls are caught or known to be lost, or until none has moved for so long that the rest must be
     * lost.
     */
    private static Totals settled(Game game) throws InterruptedException {
        long startNs = System.nanoTime();
        long movedNs = startNs;
        Totals totals = game.totals();
        while (!totals.isSettled()) {
            Thread.sleep(POLL_MS);
            Totals now = game.totals();
            long nowNs = System.nanoTime();
            if (!now.isWhere(totals)) {
                movedNs = nowNs;
            }
            totals = now;
            if (nowNs - movedNs > QUIET_NS || nowNs - startNs > SETTLE_NS) {
                break;
            }
        }
        return game.totals(); // not those that ended the wait: they were read while the last ball was being caught
    }
}

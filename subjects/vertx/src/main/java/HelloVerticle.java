import io.vertx.core.Future;
import io.vertx.core.Promise;
import io.vertx.core.VerticleBase;
import io.vertx.core.buffer.Buffer;
import io.vertx.core.http.HttpHeaders;
import io.vertx.core.http.HttpServer;
import io.vertx.core.http.HttpServerOptions;
import io.vertx.core.http.HttpServerRequest;
import io.vertx.core.internal.ContextInternal;
import java.nio.charset.StandardCharsets;
import java.util.List;

/**
 * One instance: an HTTP server that answers every request with the same text. All instances listen on one port. Vert.x
 * deals new connections to their event loops in turn and, on each loop, to its instances in turn.
 */
final class HelloVerticle extends VerticleBase {
    private static final String HELLO = "Hello World\n";
    private static final CharSequence TEXT = HttpHeaders.createOptimized("text/plain");
    private static final int BACKLOG = 4096;

    private final String host;
    private final int port;
    private final int bodyBytes;
    private final List<Tally> tallies;
    private final RateLines rate;
    private Tally tally;
    private Buffer body;

    HelloVerticle(String host, int port, int bodyBytes, List<Tally> tallies, RateLines rate) {
        this.host = host;
        this.port = port;
        this.bodyBytes = bodyBytes;
        this.tallies = tallies;
        this.rate = rate;
    }

    @Override
    public Future<?> start() {
        String text = HELLO.repeat(bodyBytes / HELLO.length() + 1).substring(0, bodyBytes);
        body = Buffer.buffer(text.getBytes(StandardCharsets.US_ASCII));
        String startedOn = Thread.currentThread().getName();
        HttpServer server = vertx.createHttpServer(new HttpServerOptions().setAcceptBacklog(BACKLOG));
        return loop().compose(loop -> {
            tally = Tally.add(tallies, loop, startedOn, context.isEventLoopContext());
            server.requestHandler(this::answer).connectionHandler(connection -> {
                tally.connections.incrementAndGet();
                connection.closeHandler(closed -> tally.connections.decrementAndGet());
            });
            return server.listen(port, host);
        }).onSuccess(listening -> tally.port = listening.actualPort());
    }

    /**
     * The event loop whose thread reads and writes this instance's connections, whichever thread runs its handlers.
     * What waits for the future continues in this instance's context: for a server made outside of it, the loop would
     * run the handlers.
     */
    private Future<LoopThread> loop() {
        ContextInternal own = (ContextInternal) context;
        Promise<LoopThread> found = own.promise();
        own.nettyEventLoop().execute(() -> found.complete(LoopThread.current()));
        return found.future();
    }

    private void answer(HttpServerRequest request) {
        if (tally.request()) {
            rate.begin();
        }
        request.response().putHeader(HttpHeaders.CONTENT_TYPE, TEXT).end(body);
    }
}

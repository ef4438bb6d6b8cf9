import com.sun.management.GarbageCollectorMXBean;
import com.sun.management.GcInfo;
import com.sun.management.ThreadMXBean;
import com.typesafe.config.Config;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.lang.management.MemoryPoolMXBean;
import java.lang.management.MemoryType;
import java.lang.management.MemoryUsage;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import java.util.stream.Collectors;
import org.apache.pekko.actor.ActorRef;
import org.apache.pekko.actor.ActorSystem;
import org.apache.pekko.actor.AllDeadLetters;
import org.apache.pekko.actor.ExtendedActorSystem;
import org.apache.pekko.actor.Props;
import org.apache.pekko.actor.UntypedAbstractActor;
import org.slf4j.Logger;

/**
 * The players of one JVM: both sides of every pair, or one side whose partners are in another JVM. Makes the actors,
 * throws in balls, and adds up what the seats counted.
 */
final class Hall implements Game {
    private static final String NAME = "hall";
    private static final Duration PATIENCE = Duration.ofSeconds(50);
    private static final List<GarbageCollectorMXBean> COLLECTORS =
            ManagementFactory.getPlatformMXBeans(GarbageCollectorMXBean.class);
    private static final Set<String> HEAP_POOLS = ManagementFactory.getMemoryPoolMXBeans().stream()
            .filter(pool -> pool.getType() == MemoryType.HEAP)
            .map(MemoryPoolMXBean::getName)
            .collect(Collectors.toUnmodifiableSet());

    private final Options options;
    private final ActorSystem system;
    private final StatsD statsd;
    private final List<Seat> seats = new ArrayList<>();
    private final Seat lost = new Seat("dead letters");
    private final List<ActorRef> first = new ArrayList<>();
    private final List<ActorRef> second = new ArrayList<>();
    private volatile long thrown;

    /** Makes both sides. */
    static Hall ofBoth(Options options) throws IOException {
        Hall hall = new Hall(options, PekkoConfig.of(options, null));
        Logger log = LogFile.open(options.debugLog());
        hall.inside(context -> {
            for (int pair = 0; pair < options.pairs(); pair++) {
                Seat a = hall.seat("a-" + pair);
                Seat b = hall.seat("b-" + pair);
                hall.first.add(context.getContext().actorOf(hall.player(a, log), a.name));
                hall.second.add(context.getContext().actorOf(hall.player(b, log), b.name));
                a.partner = hall.second.get(pair);
                b.partner = hall.first.get(pair);
            }
        });
        return hall;
    }

    /** Makes one side, `a` or `b`; Artery listens at `address`. {@link #meet} adds the partners. */
    static Hall ofSide(Options options, String side, String address) throws IOException {
        Hall hall = new Hall(options, PekkoConfig.of(options, address));
        Logger log = LogFile.open(options.debugLog());
        hall.inside(context -> {
            for (int pair = 0; pair < options.pairs(); pair++) {
                Seat seat = hall.seat(side + "-" + pair);
                hall.first.add(context.getContext().actorOf(hall.player(seat, log), seat.name));
            }
        });
        return hall;
    }

    private Hall(Options options, Config config) throws IOException {
        this.options = options;
        statsd = StatsD.open(options);
        system = ActorSystem.create("reflection", config);
        ActorRef listener = system.actorOf(Props.create(LostBalls.class, () -> new LostBalls(lost)));
        system.eventStream().subscribe(listener, AllDeadLetters.class);
    }

    /**
     * Makes players inside of one actor: children of an actor are reached more directly than actors made by the system.
     */
    private void inside(Consumer<UntypedAbstractActor> makes) {
        CompletableFuture<Void> made = new CompletableFuture<>();
        system.actorOf(Props.create(Parent.class, () -> new Parent(makes, made)), NAME);
        made.join();
    }

    private Seat seat(String name) {
        Seat seat = new Seat(name);
        seats.add(seat);
        return seat;
    }

    private Props player(Seat seat, Logger log) {
        return Props.create(Player.class, () -> new Player(seat, options.reusesMessage(), statsd.updates(), log))
                .withDispatcher(PekkoConfig.DISPATCHER)
                .withMailbox(PekkoConfig.MAILBOX);
    }

    /** The address under which another JVM reaches the players of this one. */
    String address() {
        return ((ExtendedActorSystem) system).provider().getDefaultAddress().toString();
    }

    /**
     * Pairs the players of this side with those at that address, once these have answered: then the connection is open.
     */
    void meet(String side, String address) {
        List<CompletableFuture<ActorRef>> asked = new ArrayList<>();
        for (int pair = 0; pair < options.pairs(); pair++) {
            String path = address + "/user/" + NAME + "/" + side + "-" + pair;
            asked.add(system.actorSelection(path).resolveOne(PATIENCE).toCompletableFuture());
        }
        for (int pair = 0; pair < options.pairs(); pair++) {
            ActorRef partner = asked.get(pair).join();
            seats.get(pair).partner = partner;
            second.add(partner);
        }
    }

    @Override
    public void throwIn() {
        String filler = Ball.filler(options.payload());
        for (int ball = 0; ball < options.balls(); ball++) {
            for (int pair = 0; pair < options.pairs() && !Player.stopping; pair++) {
                ActorRef a = first.get(pair);
                ActorRef b = second.get(pair);
                thrown = thrown + 1;
                if (ball % 2 == 0) {
                    a.tell(new Ball(0, filler), b);
                } else {
                    b.tell(new Ball(0, filler), a);
                }
            }
        }
    }

    @Override
    public Totals totals() {
        Totals totals = new Totals();
        seats.forEach(seat -> seat.addTo(totals));
        lost.addTo(totals);
        totals.add(Count.THROWN, thrown);
        totals.add(Count.ALLOCATED_BYTES,
                ((ThreadMXBean) ManagementFactory.getThreadMXBean()).getTotalThreadAllocatedBytes());
        totals.add(Count.HEAP_AFTER_GC_BYTES, heapAfterCollection());
        return totals;
    }

    /**
     * The heap in use after the last collection; 0 before the first. Must be cheap: every page asks for it while
     * players wait for a CPU.
     */
    private static long heapAfterCollection() {
        return COLLECTORS.stream()
                .map(GarbageCollectorMXBean::getLastGcInfo)
                .filter(Objects::nonNull)
                .max(Comparator.comparingLong(GcInfo::getEndTime))
                .map(last -> heapBytes(last.getMemoryUsageAfterGc()))
                .orElse(0L);
    }

    private static long heapBytes(Map<String, MemoryUsage> used) {
        long bytes = 0;
        for (Map.Entry<String, MemoryUsage> pool : used.entrySet()) {
            bytes += HEAP_POOLS.contains(pool.getKey()) ? pool.getValue().getUsed() : 0;
        }
        return bytes;
    }

    @Override
    public void stop() {
        Player.stopping = true;
    }

    @Override
    public void close() {
        statsd.close();
    }

    /** The players' parent: makes them, and does nothing else. */
    private static final class Parent extends UntypedAbstractActor {
        private final Consumer<UntypedAbstractActor> makes;
        private final CompletableFuture<Void> made;

        Parent(Consumer<UntypedAbstractActor> makes, CompletableFuture<Void> made) {
            this.makes = makes;
            this.made = made;
        }

        @Override
        public void preStart() {
            try {
                makes.accept(this);
                made.complete(null);
            } catch (RuntimeException | Error cannot) {
                made.completeExceptionally(cannot);
                throw cannot;
            }
        }

        @Override
        public void onReceive(Object message) {
            unhandled(message);
        }
    }

    /** Counts the balls that no mailbox accepted, and their receipts. */
    private static final class LostBalls extends UntypedAbstractActor {
        private final Seat seat;

        LostBalls(Seat seat) {
            this.seat = seat;
        }

        @Override
        public void onReceive(Object message) {
            if (message instanceof AllDeadLetters letter && letter.message() instanceof Ball ball) {
                seat.add(Count.LOST_COUNTS, ball.count);
                seat.add(Count.LOST, 1);
            }
        }
    }
}

using Akka.Actor;
using Akka.Event;

namespace Powerband.Reflection;

/// <summary>
/// The players of a process: makes both sides of every pair, or one side whose partners are in the other process;
/// throws in balls, and adds up what the seats counted.
/// </summary>
internal sealed class Hall : IGame
{
    private const string ThrowInAll = "throw in all balls";

    private static readonly TimeSpan Patience = TimeSpan.FromSeconds(50);

    private readonly Options options;
    private readonly List<Seat> seats = [];
    private readonly Seat lost = new("dead letters");
    private readonly List<IActorRef> first = [];
    private readonly List<IActorRef> second = [];
    private readonly IActorRef parent;
    private readonly ActorSystem system;
    private readonly string side;
    private long thrown;

    /// <summary>`side`: a or b; empty for both.</summary>
    internal Hall(Options options, Action<Seat>? updates, string side = "")
    {
        this.options = options;
        this.side = side;
        system = ActorSystem.Create("reflection", AkkaConfig.Of(options));
        var listener = system.ActorOf(Props.Create(() => new LostBalls(lost)));
        system.EventStream.Subscribe(listener, typeof(AllDeadLetters));
        var made = new TaskCompletionSource();
        var props = Props.Create(() => new Parent(this, updates, made)).WithDispatcher(AkkaConfig.Dispatcher);
        parent = system.ActorOf(props, "hall");
        if (!made.Task.Wait(Patience))
        {
            throw new TimeoutException($"the actors were not made within {Patience.TotalSeconds:0} s");
        }
    }

    /// <summary>
    /// Makes the players' parent throw in all balls. A thread of its own tells it to, which ends afterwards: with the
    /// channel executor, a thread that sends to an idle actor may become one of its workers for as long as there is
    /// work.
    /// </summary>
    public void ThrowIn() => new Thread(() => parent.Tell(ThrowInAll)) { Name = "throw in", IsBackground = true }.Start();

    /// <summary>Balls that are still to be thrown in.</summary>
    public long Unthrown => ((long)options.Pairs * options.Balls) - Volatile.Read(ref thrown);

    /// <summary>The address under which the other process reaches these players.</summary>
    internal string Address => ((ExtendedActorSystem)system).Provider.DefaultAddress.ToString();

    /// <summary>Finds the partners in the other process. Raises TimeoutException.</summary>
    internal void Meet(string address)
    {
        var partners = side == "a" ? second : first;
        for (var pair = 0; pair < options.Pairs; pair++)
        {
            var path = $"{address}/user/hall/{(side == "a" ? "b" : "a")}-{pair}";
            var found = system.ActorSelection(path).ResolveOne(Patience);
            partners.Add(((Task)found).Wait(Patience) ? found.Result : throw new TimeoutException($"nobody is at {path}"));
            seats[pair].Partner = partners[pair];
        }
    }

    public void Stop() => Player.Stop();

    public Totals Totals()
    {
        var totals = new Totals();
        foreach (var seat in seats)
        {
            seat.AddTo(totals);
        }

        lost.AddTo(totals);
        LogFile.Written.AddTo(totals);
        totals.Add(Count.Thrown, Volatile.Read(ref thrown));
        return totals;
    }

    /// <summary>Throws in the balls; stops early if the reflection is to stop meanwhile.</summary>
    private void Throw()
    {
        for (var ball = 0; ball < options.Balls; ball++)
        {
            for (var pair = 0; pair < options.Pairs && !Player.Stopping; pair++)
            {
                var (to, from) = ball % 2 == 0 ? (first[pair], second[pair]) : (second[pair], first[pair]);
                Volatile.Write(ref thrown, thrown + 1);
                to.Tell(new Ball(0), from);
            }
        }
    }

    private void Make(IUntypedActorContext context, Action<Seat>? updates)
    {
        for (var pair = 0; side.Length > 0 && pair < options.Pairs; pair++)
        {
            Seat seat = new($"{side}-{pair}");
            seats.Add(seat);
            (side == "a" ? first : second).Add(Made(context, seat, updates));
        }

        for (var pair = 0; side.Length == 0 && pair < options.Pairs; pair++)
        {
            Seat a = new($"a-{pair}"), b = new($"b-{pair}");
            seats.AddRange([a, b]);
            first.Add(Made(context, a, updates));
            second.Add(Made(context, b, updates));
            (a.Partner, b.Partner) = (second[pair], first[pair]);
        }
    }

    private IActorRef Made(IUntypedActorContext context, Seat seat, Action<Seat>? updates)
    {
        var reuses = options.ReusesMessage;
        var props = Props.Create(() => new Player(seat, reuses, updates))
            .WithDispatcher(AkkaConfig.Dispatcher)
            .WithMailbox(AkkaConfig.Mailbox);
        return context.ActorOf(props, seat.Name);
    }

    /// <summary>The players' parent, on their dispatcher: makes the players and throws in the balls.</summary>
    private sealed class Parent(Hall hall, Action<Seat>? updates, TaskCompletionSource made) : UntypedActor
    {
        protected override void PreStart()
        {
            try
            {
                hall.Make(Context, updates);
                made.SetResult();
            }
            catch (Exception cannot)
            {
                made.SetException(cannot);
                throw;
            }
        }

        protected override void OnReceive(object message)
        {
            if (message as string == ThrowInAll)
            {
                hall.Throw();
            }
            else
            {
                Unhandled(message);
            }
        }
    }

    /// <summary>Counts the balls that no mailbox accepted, and their receipts.</summary>
    private sealed class LostBalls(Seat seat) : UntypedActor
    {
        protected override void OnReceive(object message)
        {
            if (message is AllDeadLetters { Message: Ball ball })
            {
                seat.Add(Count.LostCounts, ball.Count);
                seat.Add(Count.Lost, 1);
            }
        }
    }
}

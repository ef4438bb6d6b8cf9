using Akka.Actor;
using Akka.Event;

namespace Powerband.Reflection;

/// <summary>The players: makes both sides of every pair, throws in balls, and sums up what the seats counted.</summary>
internal sealed class Hall
{
    private static readonly TimeSpan Patience = TimeSpan.FromSeconds(50);

    private readonly Options options;
    private readonly List<Seat> seats = [];
    private readonly Seat lost = new("dead letters");
    private readonly List<IActorRef> first = [];
    private readonly List<IActorRef> second = [];
    private long thrown;

    internal Hall(Options options, Action<Seat>? updates)
    {
        this.options = options;
        var system = ActorSystem.Create("reflection", AkkaConfig.Of(options));
        var listener = system.ActorOf(Props.Create(() => new LostBalls(lost)));
        system.EventStream.Subscribe(listener, typeof(AllDeadLetters));
        var made = new TaskCompletionSource();
        system.ActorOf(Props.Create(() => new Parent(Make, updates, made)), "hall");
        if (!made.Task.Wait(Patience))
        {
            throw new TimeoutException($"the actors were not made within {Patience.TotalSeconds:0} s");
        }
    }

    /// <summary>Stops at once where the reflection is to stop meanwhile.</summary>
    internal void ThrowIn()
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

    internal Totals Totals()
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

    private void Make(IUntypedActorContext context, Action<Seat>? updates)
    {
        for (var pair = 0; pair < options.Pairs; pair++)
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

    /// <summary>The players' parent: makes them, and does nothing else.</summary>
    private sealed class Parent(
        Action<IUntypedActorContext, Action<Seat>?> makes, Action<Seat>? updates, TaskCompletionSource made) : UntypedActor
    {
        protected override void PreStart()
        {
            try
            {
                makes(Context, updates);
                made.SetResult();
            }
            catch (Exception cannot)
            {
                made.SetException(cannot);
                throw;
            }
        }

        protected override void OnReceive(object message) => Unhandled(message);
    }

    /// <summary>Counts balls that no mailbox took, and how often they had been received.</summary>
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

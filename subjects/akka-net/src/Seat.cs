using Akka.Actor;

namespace Powerband.Reflection;

/// <summary>
/// A player's place: its name, its partner, and its counts. Only the player counts, one message at a time, in plain
/// numbers; any thread may read them at any time. A reader of a number also sees everything counted before it.
/// </summary>
internal sealed class Seat(string name)
{
    private const int Before = 16; // two cache lines to either side, so that seats share none

    private readonly long[] cells = new long[Before + Totals.Counts + 16];

    internal string Name { get; } = name;

    /// <summary>Set before the first ball is thrown in.</summary>
    internal IActorRef? Partner { get; set; }

    internal void Add(Count count, long number)
    {
        ref var cell = ref cells[Before + (int)count];
        Volatile.Write(ref cell, cell + number);
    }

    internal void AddTo(Totals totals)
    {
        for (var at = 0; at < Totals.Counts; at++)
        {
            totals.Add((Count)at, Volatile.Read(ref cells[Before + at]));
        }
    }
}

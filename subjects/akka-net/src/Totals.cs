using System.Globalization;

namespace Powerband.Reflection;

/// <summary>One number for each <see cref="Count"/>.</summary>
internal sealed class Totals
{
    internal static readonly int Counts = Enum.GetValues<Count>().Length;

    private readonly long[] numbers = new long[Counts];

    internal long this[Count count] => numbers[(int)count];

    /// <summary>True if every ball is in a player's hand or known to be lost.</summary>
    internal bool IsSettled => this[Count.Caught] + this[Count.Lost] >= this[Count.Thrown];

    /// <summary>Parses the text that <see cref="Line"/> makes.</summary>
    internal static Totals Parse(string line)
    {
        var totals = new Totals();
        var words = line.Split(' ');
        for (var at = 0; at < Counts; at++)
        {
            totals.numbers[at] = long.Parse(words[at], CultureInfo.InvariantCulture);
        }

        return totals;
    }

    internal string Line() => string.Join(' ', numbers);

    internal Totals Plus(Totals other)
    {
        for (var at = 0; at < Counts; at++)
        {
            numbers[at] += other.numbers[at];
        }

        return this;
    }

    internal void Add(Count count, long number) => numbers[(int)count] += number;

    /// <summary>True if no ball has moved between the two.</summary>
    internal bool IsWhere(Totals other) => this[Count.Received] == other[Count.Received]
        && this[Count.Lost] == other[Count.Lost] && this[Count.Caught] == other[Count.Caught];

    /// <summary>
    /// The final line, after all balls were counted. A ball that nobody has counts as lost, even if nobody saw that.
    /// </summary>
    internal string LastWords()
    {
        var received = this[Count.Received];
        var sent = this[Count.Sent] + this[Count.Thrown];
        var lost = this[Count.Thrown] - this[Count.Caught];
        var counts = this[Count.CaughtCounts] + this[Count.LostCounts];
        return $"final: messages={received} balls={this[Count.Thrown]} balls_lost={lost} sent={sent} received={received} "
            + $"ball_counts={counts} uncounted={received - counts} unreceived={sent - received - lost} "
            + $"metric_updates={this[Count.Updates]} log_lines={this[Count.LogLines]}";
    }
}

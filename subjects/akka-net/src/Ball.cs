namespace Powerband.Reflection;

/// <summary>
/// A message in play: how often it was received. It is written only where a ball is sent on itself, by the player that has
/// just received it; handing it over orders that before the next player's reading.
/// </summary>
internal sealed class Ball(long count)
{
    public long Count { get; private set; } = count;

    /// <summary>Another ball with one receipt more.</summary>
    internal Ball Next() => new(Count + 1);

    /// <summary>This ball, with one receipt more.</summary>
    internal Ball Again()
    {
        Count++;
        return this;
    }
}

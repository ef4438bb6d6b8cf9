namespace Powerband.Reflection;

/// <summary>
/// A message in play, which counts how often it was received. The count is written only when the ball itself is sent
/// on, by the player that has just received it; handing the ball over orders this write before the next player's read.
/// </summary>
internal sealed class Ball(long count)
{
    public long Count { get; private set; } = count;

    /// <summary>Makes another ball with one more receipt.</summary>
    internal Ball Next() => new(Count + 1);

    /// <summary>Adds a receipt to this ball and returns it.</summary>
    internal Ball Again()
    {
        Count++;
        return this;
    }
}

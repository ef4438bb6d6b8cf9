namespace Powerband.Reflection;

/// <summary>All balls and all players, in whichever process they are.</summary>
internal interface IGame
{
    /// <summary>Balls that are still to be thrown in.</summary>
    long Unthrown { get; }

    /// <summary>Throws in all balls, half of them to each side.</summary>
    void ThrowIn();

    /// <summary>The current totals. May be called at any time.</summary>
    Totals Totals();

    /// <summary>Stops the reflection: players keep the balls that they receive from then on.</summary>
    void Stop();
}

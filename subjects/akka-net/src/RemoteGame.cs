namespace Powerband.Reflection;

/// <summary>
/// The two sides in two processes, joined by Akka.Remote over TCP on loopback: this process plays side a and throws in
/// all balls, <see cref="OtherSide"/> plays side b.
/// </summary>
internal sealed class RemoteGame : IGame
{
    private readonly OtherSide there;
    private readonly Hall here;

    internal RemoteGame(Options options, Action<Seat>? updates)
    {
        there = OtherSide.Start(options);
        here = new Hall(options, updates, "a");
        here.Meet(there.Reply());
        there.Ask(OtherSide.Meet + here.Address);
    }

    public long Unthrown => here.Unthrown;

    public void ThrowIn() => here.ThrowIn();

    public Totals Totals() => here.Totals().Plus(Powerband.Reflection.Totals.Parse(there.Ask(OtherSide.Sums)));

    public void Stop()
    {
        here.Stop();
        there.Ask(OtherSide.End);
    }
}

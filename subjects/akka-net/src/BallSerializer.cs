using System.Buffers.Binary;
using Akka.Actor;
using Akka.Serialization;

namespace Powerband.Reflection;

/// <summary>The hand-written serializer of balls: the count in eight bytes.</summary>
internal sealed class BallSerializer(ExtendedActorSystem system) : Serializer(system)
{
    public override int Identifier => 4001;

    public override bool IncludeManifest => false;

    public override byte[] ToBinary(object obj)
    {
        var bytes = new byte[sizeof(long)];
        BinaryPrimitives.WriteInt64LittleEndian(bytes, ((Ball)obj).Count);
        return bytes;
    }

    public override object FromBinary(byte[] bytes, Type type) => new Ball(BinaryPrimitives.ReadInt64LittleEndian(bytes));
}

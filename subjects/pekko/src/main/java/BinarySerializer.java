import java.io.NotSerializableException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.apache.pekko.serialization.ByteBufferSerializer;
import org.apache.pekko.serialization.SerializerWithStringManifest;

/** The hand-written serializer of balls: the count in eight bytes, then the filler, straight into Artery's buffer. */
final class BinarySerializer extends SerializerWithStringManifest implements ByteBufferSerializer {
    private static final int IDENTIFIER = 4001;
    private static final String MANIFEST = "b";

    @Override
    public int identifier() {
        return IDENTIFIER;
    }

    @Override
    public String manifest(Object ball) {
        return MANIFEST;
    }

    @Override
    public void toBinary(Object object, ByteBuffer buffer) {
        Ball ball = (Ball) object;
        buffer.putLong(ball.count);
        if (!ball.filler.isEmpty()) {
            buffer.put(ball.filler.getBytes(StandardCharsets.ISO_8859_1));
        }
    }

    @Override
    public byte[] toBinary(Object object) {
        ByteBuffer buffer = ByteBuffer.allocate(Long.BYTES + ((Ball) object).filler.length());
        toBinary(object, buffer);
        return buffer.array();
    }

    @Override
    public Object fromBinary(ByteBuffer buffer, String manifest) throws NotSerializableException {
        if (!manifest.equals(MANIFEST)) {
            throw new NotSerializableException(manifest);
        }
        long count = buffer.getLong();
        if (!buffer.hasRemaining()) {
            return new Ball(count, "");
        }
        byte[] filler = new byte[buffer.remaining()];
        buffer.get(filler);
        return new Ball(count, new String(filler, StandardCharsets.ISO_8859_1));
    }

    @Override
    public Object fromBinary(byte[] bytes, String manifest) throws NotSerializableException {
        return fromBinary(ByteBuffer.wrap(bytes), manifest);
    }
}

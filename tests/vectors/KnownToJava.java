import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.*;
import javax.crypto.Cipher;
import javax.crypto.spec.SecretKeySpec;

/** Prints pppp-2-java.json: what the JDK itself says about hashCodes, hashes and the AES flag. */
public class KnownToJava {
  static final List<String> codes = new ArrayList<>();
  static final List<String> hashes = new ArrayList<>();

  static void code(String kind, String json, Object value) {
    codes.add(String.format("    [\"%s\", %s, %d]", kind, json, Objects.hashCode(value)));
  }

  static long shiftAndAdd(long original, byte toAdd) {
    return (original << 8) + (toAdd & 0xff);
  }

  static long signedShiftAndAdd(long original, byte toAdd) {
    return (original << 8) + toAdd;
  }

  static void hash(String name, int count, int hashCode) {
    char[] letters = {
      name.charAt(0), name.charAt(name.length() / 2), name.charAt(name.length() - 1)
    };
    long text = 0;
    long jvm = 0;
    byte[] bytes = {
      (byte) letters[0], (byte) letters[1], (byte) letters[2], (byte) count,
      (byte) hashCode, (byte) (hashCode >> 8), (byte) (hashCode >> 16), (byte) (hashCode >> 24)
    };
    for (byte b : bytes) {
      text = shiftAndAdd(text, b);
      jvm = signedShiftAndAdd(jvm, b);
    }
    hashes.add(String.format("    [\"%s\", %d, %d, %d, %d]", name, count, hashCode, text, jvm));
  }

  static String hex(byte[] bytes) {
    return HexFormat.of().formatHex(bytes);
  }

  public static void main(String[] arguments) throws Exception {
    for (String s : new String[] {"", "a", "hello", "polygenelubricants", "\u00e9t\u00e9", "\ud83d\ude00", "\u0000x", "The quick brown fox"}) {
      StringBuilder json = new StringBuilder("\"");
      for (char c : s.toCharArray()) json.append(c < 128 && c > 31 ? "" + c : String.format("\\u%04x", (int) c));
      code("str", json.append('"').toString(), s);
    }
    for (int i : new int[] {0, 1, -1, 127, -128, 65536, Integer.MAX_VALUE, Integer.MIN_VALUE}) {
      code("int", "" + i, i);
      code("long", "" + i, (long) i);
    }
    for (long l : new long[] {1L << 31, -(1L << 31) - 1, 1L << 32, 1234567890123L, -1234567890123L, Long.MAX_VALUE, Long.MIN_VALUE}) {
      code("long", "" + l, l);
    }
    code("bool", "true", true);
    code("bool", "false", false);
    code("null", "null", null);
    for (double d : new double[] {0.0, -0.0, 1.0, 1.5, -2.25, 0.1, 1e300, 5e-324, 123456.789}) {
      code("float", "" + d, d);
      code("float32", "" + d, (float) d);
    }
    code("float", "\"nan\"", Double.NaN);
    code("float", "\"inf\"", Double.POSITIVE_INFINITY);
    code("float", "\"-inf\"", Double.NEGATIVE_INFINITY);
    code("float32", "\"nan\"", Float.NaN);
    code("float32", "\"inf\"", Float.POSITIVE_INFINITY);
    code("list", "[]", List.of());
    code("list", "[1, \"a\", null, true]", Arrays.asList(1, "a", null, true));
    code("list", "[[1], [[2, 3]]]", List.of(List.of(1), List.of(List.of(2, 3))));
    Map<String, Object> map = new HashMap<>();
    map.put("a", 1);
    map.put("b", null);
    map.put("c", List.of(2));
    code("map", "{\"a\": 1, \"b\": null, \"c\": [2]}", map);
    codes.add("    [\"bytes\", \"0001ff80\", " + Arrays.hashCode(new byte[] {0, 1, -1, -128}) + "]");
    codes.add("    [\"fields\", [], " + Objects.hash() + "]");
    codes.add("    [\"fields\", [\"Ada\", 36, true, 1.5, null, [1, 2]], " + Objects.hash("Ada", 36, true, 1.5, null, List.of(1, 2)) + "]");
    hash("Person", 2, Objects.hash("Ada", 36));
    hash("X", 0, 1);
    hash("AB", 256, -1);
    hash("Counter", 3, Integer.MIN_VALUE);
    hash("\u00c9t\u00e9", 255, 0x01020384);
    hash("SampleObject", 2, 0x7f80ff01);
    byte[] key = Arrays.copyOf(MessageDigest.getInstance("SHA-1").digest("correct horse \u00e9".getBytes(StandardCharsets.UTF_8)), 16);
    byte[] salt = new byte[32];
    for (int i = 0; i < salt.length; i++) salt[i] = (byte) (200 + i);
    List<String> ciphers = new ArrayList<>();
    for (int length : new int[] {0, 1, 15, 16, 17, 100}) {
      byte[] clear = new byte[32 + length];
      System.arraycopy(salt, 0, clear, 0, 32);
      for (int i = 0; i < length; i++) clear[32 + i] = (byte) (7 * i);
      Cipher cipher = Cipher.getInstance("AES/ECB/PKCS5Padding");
      cipher.init(Cipher.ENCRYPT_MODE, new SecretKeySpec(key, "AES"));
      ciphers.add(String.format("      [\"%s\", \"%s\"]", hex(Arrays.copyOfRange(clear, 32, clear.length)), hex(cipher.doFinal(clear))));
    }
    System.out.println("{\n  \"codes\": [\n" + String.join(",\n", codes) + "\n  ],\n  \"hashes\": [\n" + String.join(",\n", hashes)
        + "\n  ],\n  \"aes\": {\n    \"passphrase\": \"correct horse \\u00e9\",\n    \"salt\": \"" + hex(salt) + "\",\n    \"frames\": [\n"
        + String.join(",\n", ciphers) + "\n    ]\n  }\n}");
  }
}

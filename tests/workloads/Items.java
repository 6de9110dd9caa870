import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;

/**
 * Items of a virtual machine: each begins with a read and ends with a write, and every 40th takes heavy() longer.
 *
 * Items WARM_UP ITEMS: once all is compiled it prints "ready" and waits for a line.
 */
public class Items {
  static long usual(long sum) {
    for (int i = 0; i < 20_000; i++) sum = sum * 31 + (sum >>> 7) ^ i;
    return sum;
  }

  static long heavy(long sum) {
    for (int i = 0; i < 1_500_000; i++) sum = sum * 31 + (sum >>> 7) ^ i;
    return sum;
  }

  static long work(FileInputStream in, FileOutputStream out, int items) throws IOException {
    byte[] one = new byte[1];
    long sum = 0;
    for (int n = 1; n <= items; n++) {
      in.read(one);
      sum = usual(sum);
      if (n % 40 == 0) sum = heavy(sum);
      out.write(one);
    }
    return sum;
  }

  public static void main(String[] args) throws IOException {
    try (FileInputStream in = new FileInputStream("/dev/zero");
        FileOutputStream out = new FileOutputStream("/dev/null")) {
      long sum = work(in, out, Integer.parseInt(args[0]));
      System.out.println("ready");
      System.in.read();
      sum += work(in, out, Integer.parseInt(args[1]));
      System.out.println(sum);
    }
  }
}
